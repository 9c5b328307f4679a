# Log densities of the models of counts at fixed points, all constants kept.
#
# The joint density of y, w and the parameters in natural coordinates: what the Stan programs and
# the package's own sampler must both have as their target.
source(file.path("tests", "parity", "common.R"))
source(file.path("tests", "parity", "counts_common.R"))
inputs <- begin("counts", c("mvtnorm", "fields"))$counts
data <- count_data(inputs)
points <- inputs$points
MATERN <- c(exponential = 0.5, matern32 = 1.5, matern52 = 2.5)

likelihood <- list(
  "poisson" = function(y, eta, size) dpois(y, exp(eta), log = TRUE),
  "negative binomial" = function(y, eta, size) dnbinom(y, size = size, mu = exp(eta), log = TRUE),
  "bernoulli" = function(y, eta, size) dbinom(y, 1, plogis(eta), log = TRUE)
)
half_normal <- function(v) log(2) + dnorm(sqrt(v), 0, inputs$sigma, log = TRUE) - log(2 * sqrt(v))
inverse_gamma <- function(v) {
  shape <- inputs$inverse_gamma[1]
  dgamma(1 / v, shape, rate = inputs$inverse_gamma[2], log = TRUE) - 2 * log(v)
}

for (outcome in names(likelihood)) {
  for (kind in names(MATERN)) {
    for (i in seq_along(points$phi)) {
      v <- points$sigma_sq[i]
      R <- fields::Matern(data$d, range = 1 / points$phi[i], smoothness = MATERN[[kind]])
      gamma <- if (i == 2) Inf else 0
      A <- smoothing(gamma, inputs$a)
      offset <- if (outcome == "bernoulli") 0 else log(data$columns$exposure)
      eta <- offset + data$X %*% points$beta[i, ] + A * points$w[i, data$site]
      size <- points$size[i]
      prior <- sum(dnorm(points$beta[i, ], 0, inputs$beta_scale, log = TRUE)) +
        (if (i == 3) inverse_gamma(v) else half_normal(v)) +
        dunif(points$phi[i], inputs$phi_bounds[1], inputs$phi_bounds[2], log = TRUE)
      if (outcome == "negative binomial") {
        prior <- prior + dlnorm(size, log(inputs$size[1]), inputs$size[2], log = TRUE)
      }
      value <- prior + sum(likelihood[[outcome]](data$columns[[outcome]], eta, size)) +
        mvtnorm::dmvnorm(points$w[i, ], sigma = v * R, log = TRUE)
      for (side in c("program", "sampler")) {
        record_density(
          sprintf("%s/%s/%s/%d", side, outcome, kind, i),
          sprintf(
            "the joint log density of a count, w and the parameters (%s) is R's",
            if (side == "program") "Stan program" else "target of the package's own sampler"
          ),
          sprintf(
            "%s, %s, %s, gamma %s, %s", inputs$words, outcome, kind, gamma,
            if (i == 3) "inverse gamma" else "half-normal"
          ),
          value,
          "mvtnorm::dmvnorm, fields::Matern, stats::dpois, stats::dnbinom, stats::dbinom"
        )
      }
    }
  }
}
finish()
