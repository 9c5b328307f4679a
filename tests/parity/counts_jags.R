# Posteriors of the models of counts by JAGS, the spatial effect latent.
#
# `Rscript tests/parity/counts_jags.R` from the repository root; with `short <output>` a short run.
# A record with A_ii = 0 tells nothing of w; its own w is then drawn from its conditional prior.
source(file.path("tests", "parity", "posterior_common.R"))
source(file.path("tests", "parity", "counts_common.R"))
suppressPackageStartupMessages(library(rjags))
load.module("glm", quiet = TRUE)

# The negative binomial is a Poisson with a gamma factor of mean 1, so that w stays in a block.
RESPONSES <- list(
  "poisson" = "
    log(mu[i]) <- eta[i]
    y[i] ~ dpois(mu[i])",
  "negative binomial" = "
    log(mu[i]) <- eta[i] + log(factor[i])
    factor[i] ~ dgamma(size, size)
    y[i] ~ dpois(mu[i])",
  "bernoulli" = "
    logit(mu[i]) <- eta[i]
    y[i] ~ dbern(mu[i])"
)
COMMON <- "
  for (j in 1:2) { beta[j] ~ dnorm(0, beta_precision[j]) }
  Omega[1:n, 1:n] <- inverse_R[1:n, 1:n] / sigma_sq
  w[1:n] ~ dmnorm(zero, Omega[1:n, 1:n])
  for (i in 1:N) {
    eta[i] <- shift[i] + beta[1] * X[i, 1] + beta[2] * X[i, 2] + A[i] * w[site[i]]
    %s
  }
  for (k in 1:4) { shown[k] <- w[site[watched[k]]] }
  own <- shift[copied] + beta[1] * X[copied, 1] + beta[2] * X[copied, 2] + w[site[copied]]
  sigma_sq <- sigma * sigma
"
# Along sigma_sq phi = constant the likelihood of w hardly changes: see posterior_jags.R.
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
SIZE <- "
  log_size ~ dnorm(size_mean, size_precision)
  size <- exp(log_size)
"
DRAW <- list(
  "poisson" = function(eta, size) rpois(length(eta), exp(eta)),
  "negative binomial" = function(eta, size) rnbinom(length(eta), size = size, mu = exp(eta)),
  "bernoulli" = function(eta, size) rbinom(length(eta), 1, plogis(eta))
)

by_jags <- function(inputs, about, lengths, seed) {
  data <- count_data(inputs)
  n <- nrow(data$d)
  nb <- about$outcome == "negative binomial"
  given <- list(
    N = nrow(data$X), n = n, X = data$X, y = data$columns[[about$outcome]], site = data$site,
    A = smoothing(if (about$flags) Inf else 0, inputs$a), zero = rep(0, n),
    shift = if (about$offset) log(data$columns$exposure) else rep(0, nrow(data$X)),
    watched = inputs$watched + 1, copied = inputs$copied + 1,
    beta_precision = 1 / inputs$beta_scale^2, root_precision = 1 / inputs$sigma^2
  )
  given <- c(given, if (about$free) list(
    d_top = data$d * inputs$phi_bounds[2], low = inputs$phi_bounds[1], top = inputs$phi_bounds[2]
  ) else list(inverse_R = chol2inv(chol(exp(-inputs$phi * data$d)))))
  if (nb) given <- c(given, list(size_mean = log(inputs$size[1]), size_precision = 1 / inputs$size[2]^2))
  text <- paste0(
    "model {", if (about$free) FREE else HELD, if (nb) SIZE,
    sprintf(COMMON, RESPONSES[[about$outcome]]), "}"
  )
  inits <- lapply(seq_len(inputs$chains), function(k) {
    c(
      if (about$free) list(phi = 4 * k, ridge = sqrt(4 * k)) else list(sigma = 0.4 + 0.2 * k),
      if (nb) list(log_size = k / 2),
      list(.RNG.name = "base::Mersenne-Twister", .RNG.seed = seed + k)
    )
  })
  model <- jags.model(textConnection(text), given, inits, inputs$chains, n.adapt = 0, quiet = TRUE)
  adapt(model, lengths$warmup, end.adaptation = TRUE, progress.bar = "none")
  wanted <- c("beta", "sigma_sq", if (about$free) "phi", if (nb) "size", "shown", "own")
  got <- jags.samples(model, wanted, lengths$kept, progress.bar = "none")
  take <- function(name, j = 1) matrix(got[[name]][j, , ], lengths$kept)
  set.seed(seed)
  own <- take("own")
  size <- if (nb) take("size") else own
  copy <- own
  copy[] <- DRAW[[about$outcome]](as.vector(own), as.vector(size))
  out <- list(beta_0 = take("beta", 1), beta_1 = take("beta", 2), sigma_sq = take("sigma_sq"))
  if (about$free) out$phi <- take("phi")
  if (nb) out$size <- take("size")
  for (k in 1:4) out[[paste0("w_", inputs$watched[k])]] <- take("shown", k)
  c(out, list(copy = copy))
}

#' Means and sds for the copy, a count; quantiles too for the others.
shown <- function(name, draws) {
  if (name != "copy") return(summaries(draws))
  list(
    mean = estimate(draws, mean, posterior::mcse_mean(draws), posterior::ess_mean(draws)),
    sd = estimate(
      draws, function(d) stats::sd(d), posterior::mcse_sd(draws), posterior::ess_sd(draws)
    )
  )
}

given <- commandArgs(trailingOnly = TRUE)
short <- length(given) == 2 && given[1] == "short"
stopifnot(short || !length(given))
inputs <- begin("counts_jags", c("rjags", "posterior"), "counts")$counts
runs <- list()
for (name in names(inputs$posteriors)) {
  about <- inputs$posteriors[[name]]
  long <- inputs$lengths[[if (about$free) "free" else "held"]]
  lengths <- if (short) list(warmup = 50, kept = 100) else long
  seed <- inputs$seed + 10 * match(name, names(inputs$posteriors))
  begun <- proc.time()[["user.self"]]
  draws <- by_jags(inputs, about, lengths, seed)
  seconds <- proc.time()[["user.self"]] - begun
  outside <- mean(draws$sigma_sq < inputs$sigma_bounds[1]^2 | draws$sigma_sq > inputs$sigma_bounds[2]^2)
  told <- if (short) list(draws = lapply(draws, t)) else list(
    rhat = lapply(draws, posterior::rhat),
    quantities = stats::setNames(
      lapply(names(draws), function(p) shown(p, draws[[p]])), names(draws)
    )
  )
  runs[[name]] <- c(
    list(case = inputs$words, seed = seed, chains = inputs$chains), lengths,
    list(seconds = round(seconds, 1), outside = outside, priors = list(sigma = inputs$sigma)), told
  )
  cat(sprintf("counts_jags: %s, %.0f s\n", name, seconds))
}
output <- if (short) given[2] else file.path(here, "golden", "counts_jags.json")
write_posteriors(
  output, "counts_jags", "rjags::jags.model, rjags::jags.samples",
  c(packages_of(c("rjags", "posterior")), list(JAGS = as.character(jags.version()))), runs
)
