# The truncated likelihood of equation trun of Quick, Holan and Wikle (2018) by JAGS, phi held.
#
# T(low, high) keeps the normalising constant, which holds w. gamma is infinite: A_ii = 0 for the
# two flagged records. Runs from the repository root and writes its golden file.
source(file.path("tests", "parity", "posterior_common.R"))
suppressPackageStartupMessages(library(rjags))
load.module("glm", quiet = TRUE)
case <- begin("bracketed_jags", c("rjags", "posterior"), "bracketed_posterior")[[1]]

MODEL <- "model {
  for (j in 1:2) { beta[j] ~ dnorm(0, beta_precision[j]) }
  sigma ~ dnorm(0, root_precision) T(0, )
  tau ~ dnorm(0, root_precision) T(0, )
  for (k in 1:N) { z[k] ~ dnorm(0, 1) }
  w <- sigma * (L %*% z)
  for (i in 1:N) {
    mu[i] <- beta[1] + beta[2] * x[i] + A[i] * w[i]
    y[i] ~ dnorm(mu[i], 1 / tau^2) T(low[i], high[i])
  }
  for (k in 1:3) {
    shown[k] <- w[watched[k]]
    copy[k] ~ dnorm(beta[1] + beta[2] * x[watched[k]] + w[watched[k]], 1 / tau^2) T(
      low[watched[k]], high[watched[k]]
    )
  }
  sigma_sq <- sigma^2
  tau_sq <- tau^2
}"

d <- as.matrix(stats::dist(cbind(case$columns$u, case$columns$v)))
n <- length(case$y)
A <- rep(1, n)
A[case$flagged + 1] <- 0
ends <- c(-1e3, case$cuts, 1e3) # JAGS takes no infinity; nothing is as far out
bracket <- findInterval(case$y, case$cuts) + 1
data <- list(
  N = n, x = case$columns$x, y = case$y, A = A, L = unname(t(chol(exp(-case$phi * d)))),
  low = ends[bracket], high = ends[bracket + 1], watched = case$watched + 1,
  beta_precision = 1 / case$beta_scale^2, root_precision = 1 / case$root^2
)
starts <- lapply(seq_len(case$chains), function(k) {
  list(
    sigma = 0.4 + 0.5 * k, tau = 1.4 / k, beta = c(1 + 0.5 * k, 0.5),
    .RNG.name = "base::Mersenne-Twister", .RNG.seed = case$seed + k
  )
})
begun <- proc.time()[["user.self"]]
model <- jags.model(textConnection(MODEL), data, starts, case$chains, n.adapt = 0, quiet = TRUE)
adapt(model, case$warmup, end.adaptation = TRUE, progress.bar = "none")
got <- jags.samples(
  model, c("beta", "sigma_sq", "tau_sq", "shown", "copy"), case$kept, progress.bar = "none"
)
take <- function(name, j) matrix(got[[name]][j, , ], case$kept)
labels <- case$watched
draws <- c(
  list(
    beta_0 = take("beta", 1), beta_1 = take("beta", 2),
    sigma_sq = take("sigma_sq", 1), tau_sq = take("tau_sq", 1)
  ),
  stats::setNames(lapply(1:3, function(k) take("shown", k)), paste0("w_", labels)),
  stats::setNames(lapply(1:3, function(k) take("copy", k)), paste0("copy_", labels))
)
run <- list(
  case = case$words, gamma = Inf, seed = case$seed, chains = case$chains, warmup = case$warmup,
  kept = case$kept, seconds = round(proc.time()[["user.self"]] - begun, 1), priors = list(beta = case$beta_scale, root = case$root),
  rhat = lapply(draws, posterior::rhat), quantities = lapply(draws, summaries)
)
# The prior is cut to this range of tau_sq / sigma_sq, and JAGS knows no cut.
r <- draws$tau_sq / draws$sigma_sq
run$outside <- mean(r < case$r_bounds[1] | r > case$r_bounds[2])
output <- file.path(here, "golden", "bracketed_jags.json")
given <- commandArgs(trailingOnly = TRUE)
versions <- c(packages_of(c("rjags", "posterior")), list(JAGS = as.character(jags.version())))
write_posteriors(
  if (length(given)) given[1] else output, "bracketed_jags",
  "rjags::jags.model, rjags::jags.samples", versions, list("bracketed/infinite" = run)
)
cat(sprintf("bracketed_jags: %.0f s\n", run$seconds))
