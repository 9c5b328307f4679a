# The log density of bracketed.stan at natural parameters, all constants kept, and its normalising
# constants far from the mean.
source(file.path("tests", "parity", "common.R"))
read <- begin("bracketed", c("truncnorm", "fields"), c("cases", "density", "bracketed"))
own <- read$bracketed
prior <- read$density
case <- read$cases$hand
data <- case_data(case)
points <- points_of(case$off_nodes)

# log(exp(a) - exp(b)), a above b.
log_difference <- function(a, b) a + log1p(-exp(b - a))

# log of the probability of (low, high) under normal(mean, sd), from the smaller pair of tails.
log_mass <- function(low, high, mean, sd) {
  upper <- (low - mean) + (high - mean) > 0
  a <- ifelse(upper, low, high)
  b <- ifelse(upper, high, low)
  tail <- function(q) {
    ifelse(
      upper, pnorm(q, mean, sd, lower.tail = FALSE, log.p = TRUE), pnorm(q, mean, sd, log.p = TRUE)
    )
  }
  log_difference(tail(a), tail(b))
}

# The root of a variance is half-normal.
half_normal <- function(v, scale) {
  log(dtruncnorm(sqrt(v), a = 0, mean = 0, sd = scale)) - log(2 * sqrt(v))
}
sites <- unique(data$sites)
site <- match(paste(data$sites[, 1], data$sites[, 2]), paste(sites[, 1], sites[, 2]))
ends <- c(-Inf, own$cuts, Inf)
bracket <- findInterval(data$y, own$cuts) + 1
low <- ends[bracket]
high <- ends[bracket + 1]

means <- function(A, p, nu) {
  R <- Matern(rdist(sites), range = 1 / p$phi, smoothness = nu)
  w <- sqrt(p$sigma_sq) * as.vector(t(chol(R)) %*% own$z)
  as.vector(data$X %*% p$beta) + A * w[site]
}
log_prior <- function(p) {
  sum(dnorm(p$beta, 0, prior$beta_scale[seq_along(p$beta)], log = TRUE)) +
    half_normal(p$sigma_sq, prior$half_normal$sigma) +
    half_normal(p$tau_sq, prior$half_normal$tau) + sum(dnorm(own$z, log = TRUE))
}
REASON <- paste(
  "log densities with all constants, absolute: tails, and the factor of the correlation, by other",
  "routines on both sides"
)

for (gamma in names(GAMMAS)) {
  A <- smoothing(GAMMAS[[gamma]], data$a)
  for (nu in c(0.5, 1.5, 2.5)) {
    words <- sprintf("%s, gamma %s, smoothness %g", case$words, gamma, nu)
    held <- vapply(points, function(p) {
      mu <- means(A, p, nu)
      sd <- sqrt(p$tau_sq)
      log_prior(p) + sum(dnorm(data$y, mu, sd, log = TRUE) - log_mass(low, high, mu, sd))
    }, numeric(1))
    record_density(
      sprintf("held/%s/%g", gamma, nu),
      "bracketed.stan has the log density of its model, phi held", words, held,
      "stats::pnorm, fields::Matern", reason = REASON
    )
  }
  # truncnorm has no logarithm of its constant: the points where nothing is far out.
  by_truncnorm <- vapply(points[2:3], function(p) {
    mu <- means(A, p, 0.5)
    log_prior(p) + dunif(p$phi, case$phi_bounds[1], case$phi_bounds[2], log = TRUE) +
      sum(log(dtruncnorm(data$y, low, high, mu, sqrt(p$tau_sq))))
  }, numeric(1))
  record_density(
    sprintf("free/%s", gamma), "bracketed.stan has the log density of its model, phi free",
    sprintf("%s, gamma %s, exponential", case$words, gamma), by_truncnorm,
    "truncnorm::dtruncnorm, fields::Matern", reason = REASON
  )
}

tails <- lapply(own$tails, as.numeric)
for (i in seq_along(tails$mean)) {
  record_density(
    sprintf("mass/%d", i), "bracket_log_mass is the log probability of a bracket",
    sprintf(
      "normal(%g, %g) from %g to %g", tails$mean[i], tails$sd[i], tails$low[i], tails$high[i]
    ),
    log_mass(tails$low[i], tails$high[i], tails$mean[i], tails$sd[i]), "stats::pnorm",
    reason = "logarithms of tails down to minus a thousand, absolute"
  )
}
finish()
