# The paper's hierarchical models as they are written, the spatial effect latent, by JAGS.
#
# Equations hier and restrict of Quick, Holan and Wikle (2018): y ~ N(X beta + A w, tau_sq I) and
# w ~ N(0, sigma_sq R(phi)). A is the identity where no record is smoothed. gamma infinite is
# A_ii = 0, so that w* = A w is exactly zero for flagged records, while w itself is drawn from
# its conditional prior.
source(file.path("tests", "parity", "posterior_common.R"))

# JAGS takes precisions. pow works on matrices and exp doesn't: R = rho^(d * top) with
# rho = exp(-phi / top), top the upper end of phi, which keeps rho away from zero.
LIKELIHOOD <- "
  for (j in 1:P) { beta[j] ~ dnorm(0, beta_precision[j]) }
  tau ~ dnorm(0, root_precision) T(0, )
  Omega[1:n, 1:n] <- inverse_R[1:n, 1:n] / sigma_sq
  w[1:n] ~ dmnorm(zero, Omega[1:n, 1:n])
  for (i in 1:N) { y[i] ~ dnorm(inprod(X[i, ], beta) + A[i] * w[site[i]], 1 / tau_sq) }
  copy ~ dnorm(inprod(X[outlier, ], beta) + carried * w[site[outlier]], 1 / tau_sq)
  for (k in 1:5) { shown[k] <- w[site[watched[k]]] }
  sigma_sq <- sigma * sigma
  tau_sq <- tau * tau
"
# sigma is half-normal(0, s). Along sigma_sq phi = constant the likelihood of w hardly changes, so
# the chain moves sigma sqrt(phi), which given phi is half-normal(0, s sqrt(phi)): the same prior.
FREE <- "
  phi ~ dunif(low, top)
  ridge ~ dnorm(0, root_precision / phi) T(0, )
  sigma <- ridge / sqrt(phi)
  rho <- exp(-phi / top)
  R[1:n, 1:n] <- pow(rho, d_top)
  inverse_R[1:n, 1:n] <- inverse(R[1:n, 1:n])
"
HELD <- "
  sigma ~ dnorm(0, root_precision) T(0, )
"

#' What the model reads.
jags_data <- function(data, A, gamma, held) {
  priors <- data$priors
  n <- nrow(data$d)
  shared <- list(
    N = length(data$y), P = ncol(data$X), n = n, y = data$y, X = data$X, A = A, site = data$site,
    zero = rep(0, n), watched = data$watched, outlier = data$outlier,
    carried = carried_by(A, gamma)[data$outlier], beta_precision = array(1 / priors$beta^2),
    root_precision = 1 / priors$root^2
  )
  if (held) return(c(shared, list(inverse_R = chol2inv(chol(exp(-data$phi * data$d))))))
  c(shared, list(d_top = data$d * priors$phi[2], low = priors$phi[1], top = priors$phi[2]))
}

#' Starting values of one chain, least squares for beta.
jags_start <- function(data, start, held, seed) {
  own <- if (held) list(sigma = start$sigma) else {
    list(phi = start$phi, ridge = start$sigma * sqrt(start$phi))
  }
  c(own, list(
    tau = start$tau, beta = array(qr.solve(data$X, data$y)), .RNG.name = "base::Mersenne-Twister",
    .RNG.seed = seed
  ))
}

#' Draws of one posterior, a sampler as run_posteriors takes it.
by_jags <- function(data, gamma, held, lengths, starts, seed) {
  A <- smoothing(gamma, data$a)
  text <- paste0("model {", if (held) HELD else FREE, LIKELIHOOD, "}")
  inits <- lapply(seq_along(starts), function(k) jags_start(data, starts[[k]], held, seed + k))
  model <- jags.model(
    textConnection(text), jags_data(data, A, gamma, held), inits, length(starts),
    n.adapt = 0, quiet = TRUE
  )
  adapt(model, lengths$warmup, end.adaptation = TRUE, progress.bar = "none")
  wanted <- c("beta", "sigma_sq", "tau_sq", if (!held) "phi", "shown", "copy")
  got <- jags.samples(model, wanted, lengths$kept, progress.bar = "none")
  take <- function(name, j) matrix(got[[name]][j, , ], lengths$kept)
  one <- function(name) stats::setNames(list(take(name, 1)), name)
  many <- function(name, labels) {
    stats::setNames(lapply(seq_along(labels), function(j) take(name, j)), labels)
  }
  c(
    many("beta", paste0("beta_", seq_len(ncol(data$X)) - 1)), one("sigma_sq"), one("tau_sq"),
    if (!held) one("phi"), many("shown", paste0("w_", data$watched - 1)), one("copy")
  )
}

suppressPackageStartupMessages(library(rjags))
load.module("glm", quiet = TRUE)
run_posteriors(
  "posterior_jags", "rjags::jags.model, rjags::jags.samples", "rjags",
  c("simulated", "subset"), by_jags, function() list(JAGS = as.character(jags.version()))
)
