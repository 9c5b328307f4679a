# The log density of every Stan program at natural parameters, all constants kept.
source(file.path("tests", "parity", "common.R"))
read <- begin("density", c("mvtnorm", "truncnorm", "fields"), c("cases", "density"))
own <- read$density
prior <- own$half_normal

# The root of a variance is half-normal: its density is a normal's truncated at 0, and the
# variance has that of the root over 2 sqrt(v). The same is a scaled chi-square of one degree.
half_normal <- function(v, scale) {
  log(dtruncnorm(sqrt(v), a = 0, mean = 0, sd = scale)) - log(2 * sqrt(v))
}
chi_square <- function(v, scale) dchisq(v / scale^2, df = 1, log = TRUE) - log(scale^2)
inverse_gamma <- function(v, par) {
  dgamma(1 / v, shape = par[1], rate = par[2], log = TRUE) - 2 * log(v)
}
variance_prior <- function(p, kind) {
  if (kind == "half-normal") {
    return(half_normal(p$sigma_sq, prior$sigma) + half_normal(p$tau_sq, prior$tau))
  }
  settings <- own$inverse_gamma
  inverse_gamma(p$sigma_sq, settings$sigma) + inverse_gamma(p$tau_sq, settings$tau)
}
log_prior <- function(p, kind = "half-normal", phi_bounds = NULL) {
  total <- sum(dnorm(p$beta, 0, own$beta_scale[seq_along(p$beta)], log = TRUE)) +
    variance_prior(p, kind)
  if (is.null(phi_bounds)) return(total)
  total + dunif(p$phi, phi_bounds[1], phi_bounds[2], log = TRUE)
}

# Log density of the response, w integrated out.
response <- function(data, A, protection, p) {
  rows <- informing(A, protection)
  V <- response_covariance(data$sites, A, protection, p)
  centre <- as.vector(data$X[rows, , drop = FALSE] %*% p$beta)
  dmvnorm(data$y[rows], centre, V, log = TRUE)
}

# Log density of the response and of w, one value a site.
hierarchical <- function(data, A, p, w) {
  sites <- unique(data$sites)
  site <- match(paste(data$sites[, 1], data$sites[, 2]), paste(sites[, 1], sites[, 2]))
  K <- p$sigma_sq * Exponential(rdist(sites), range = 1 / p$phi)
  centre <- as.vector(data$X %*% p$beta) + A * w[site]
  dmvnorm(w, sigma = K, log = TRUE) + sum(dnorm(data$y, centre, sqrt(p$tau_sq), log = TRUE))
}

at <- function(points, f) vapply(points, f, numeric(1))
DMVNORM <- "mvtnorm::dmvnorm"
COMPLETE <- "mvtnorm::dmvnorm, stats::dnorm, truncnorm::dtruncnorm"
OFF <- 1e-5
REASON_OFF <- paste(
  "between its nodes a surface interpolates: with the default 32 x 56 nodes the log density is",
  "off by up to 1e-6, and this is ten times that"
)

for (kind in c("sigma", "tau")) {
  words <- sprintf("scale %g", prior[[kind]])
  record_density(
    paste0("half-normal/", kind), "variance_lpdf is a half-normal root's density", words,
    half_normal(own$variances, prior[[kind]]), "truncnorm::dtruncnorm",
    reason = REASON_EXACT
  )
  record_density(
    paste0("chi-square/", kind), "variance_lpdf is a scaled chi-square of one degree", words,
    chi_square(own$variances, prior[[kind]]), "stats::dchisq",
    reason = REASON_EXACT
  )
  par <- own$inverse_gamma[[kind]]
  record_density(
    paste0("inverse-gamma/", kind), "variance_lpdf is an inverse gamma density",
    sprintf("shape %g, scale %g", par[1], par[2]), inverse_gamma(own$variances, par),
    "stats::dgamma",
    reason = REASON_EXACT
  )
}

for (name in c("hand", "simulated", "baltimore")) {
  case <- read$cases[[name]]
  data <- case_data(case)
  none <- rep(1, length(data$y))
  nodes <- points_of(case$at_nodes)
  held <- nodes[1:3]
  off <- points_of(case$off_nodes)
  all <- c(nodes, off)
  full <- name != "baltimore"
  record_density(
    paste0("response/none/", name), "node_statistics give the response's log density",
    paste0(case$words, ", unrestricted"),
    at(all, function(p) response(data, none, "paper", p)), DMVNORM
  )
  record_density(
    paste0("unrestricted/half-normal/", name), "unrestricted.stan gives the complete log density at its nodes", case$words,
    at(nodes, function(p) {
      response(data, none, "paper", p) + log_prior(p, "half-normal", case$phi_bounds)
    }), COMPLETE
  )
  record_density(
    paste0("unrestricted/inverse-gamma/", name), "unrestricted.stan gives the complete log density at its nodes",
    paste0(case$words, ", inverse gamma priors"),
    at(nodes, function(p) {
      response(data, none, "paper", p) + log_prior(p, "inverse-gamma", case$phi_bounds)
    }), "mvtnorm::dmvnorm, stats::dnorm, stats::dgamma"
  )
  record_density(
    paste0("unrestricted/off/", name), "unrestricted.stan gives the complete log density between its nodes", case$words,
    at(off, function(p) {
      response(data, none, "paper", p) + log_prior(p, "half-normal", case$phi_bounds)
    }), COMPLETE,
    tolerance = OFF, reason = REASON_OFF
  )
  if (full) {
    record_density(
      paste0("hier/", name), "reference/hier.stan gives the complete log density", case$words,
      at(all, function(p) {
        hierarchical(data, none, p, own$w[[name]]) + log_prior(p, "half-normal", case$phi_bounds)
      }), COMPLETE
    )
  }
  for (gamma in names(GAMMAS)) {
    A <- smoothing(GAMMAS[[gamma]], data$a)
    if (full) {
      record_density(
        sprintf("restrict/%s/%s", gamma, name), "reference/restrict.stan gives the complete log density",
        sprintf("%s, gamma %s", case$words, gamma),
        at(held, function(p) hierarchical(data, A, p, own$w[[name]]) + log_prior(p)), COMPLETE
      )
    }
    for (protection in PROTECTIONS) {
      words <- sprintf("%s, %s, gamma %s", case$words, protection, gamma)
      key <- paste(protection, gamma, name, sep = "/")
      likelihood <- function(p) response(data, A, protection, p)
      record_density(
        paste0("response/", key), "node_statistics give the response's log density", words,
        at(all, likelihood), DMVNORM
      )
      if (!full) next
      record_density(
        paste0("cholesky/", key), "reference/cholesky.stan gives the complete log density", words,
        at(all, function(p) likelihood(p) + log_prior(p, "half-normal", case$phi_bounds)), COMPLETE
      )
      record_density(
        paste0("restricted/", key), "restricted.stan gives the complete log density at its nodes", words,
        at(held, function(p) likelihood(p) + log_prior(p)), COMPLETE
      )
      record_density(
        paste0("surface/held/", key), "surface.stan with a held decay gives the complete log density at its nodes", words,
        at(held, function(p) likelihood(p) + log_prior(p)), COMPLETE
      )
      if (gamma != "4") next
      record_density(
        paste0("restricted/off/", key), "restricted.stan gives the complete log density between its nodes", words,
        likelihood(off[[1]]) + log_prior(off[[1]]), COMPLETE,
        tolerance = OFF, reason = REASON_OFF
      )
      record_density(
        paste0("surface/free/", key), "surface.stan with a free decay gives the complete log density at its nodes", words,
        at(nodes, function(p) likelihood(p) + log_prior(p, "half-normal", case$phi_bounds)),
        COMPLETE
      )
      record_density(
        paste0("surface/off/", key), "surface.stan with a free decay gives the complete log density between its nodes", words,
        at(off, function(p) likelihood(p) + log_prior(p, "half-normal", case$phi_bounds)),
        COMPLETE,
        tolerance = OFF, reason = REASON_OFF
      )
    }
  }
}
finish()
