# The multivariate model of section 6 of Quick, Holan and Wikle (2018) by JAGS: the response of three
# groups is multivariate normal with covariance A (T_kl R) A + D, coefficients and all.
#
# Writes golden/multivariate_jags.json. T is put together from half-normal roots and, for its LKJ
# correlation, from partial correlations with beta priors (Lewandowski, Kurowicka and Joe 2009).
source(file.path("tests", "parity", "posterior_common.R"))

# As in posterior_jags.R the chain moves sigma sqrt(phi), and R is a power of a matrix.
MODEL <- "
  beta[1:Q] ~ dmnorm(zero, precision)
  for (k in 1:3) {
    tau[k] ~ dnorm(0, tau_precision) T(0, )
    tau_sq[k] <- tau[k] * tau[k]
    ridge[k] ~ dnorm(0, sigma_precision / phi) T(0, )
    sigma[k] <- ridge[k] / sqrt(phi)
  }
  half[1] ~ dbeta(eta + 0.5, eta + 0.5)
  half[2] ~ dbeta(eta + 0.5, eta + 0.5)
  half[3] ~ dbeta(eta, eta)
  partial <- 2 * half - 1
  rest <- sqrt(1 - partial * partial)
  F[1, 1] <- sigma[1]
  F[1, 2] <- 0
  F[1, 3] <- 0
  F[2, 1] <- sigma[2] * partial[1]
  F[2, 2] <- sigma[2] * rest[1]
  F[2, 3] <- 0
  F[3, 1] <- sigma[3] * partial[2]
  F[3, 2] <- sigma[3] * rest[2] * partial[3]
  F[3, 3] <- sigma[3] * rest[2] * rest[3]
  Covariance[1:3, 1:3] <- F %*% t(F)
  GF[1:N, 1:3] <- G %*% F
  R[1:N, 1:N] <- pow(exp(-phi / top), d_top)
  V[1:N, 1:N] <- (GF %*% t(GF)) * R * AA + tau_sq[1] * E1 + tau_sq[2] * E2 + tau_sq[3] * E3
  Omega[1:N, 1:N] <- inverse(V[1:N, 1:N])
  m[1:N] <- Z %*% beta
  y[1:N] ~ dmnorm(m[1:N], Omega[1:N, 1:N])
"
FREE <- "phi ~ dunif(low, top)"

given <- commandArgs(trailingOnly = TRUE)
case <- begin("multivariate_jags", c("rjags", "posterior"), "multivariate")$multivariate
load.module("glm", quiet = TRUE)
table <- as.data.frame(case$columns)
priors <- case$priors
n <- nrow(table)
group <- table$group + 1
X <- cbind(1, table$x)
G <- outer(group, 1:3, "==") + 0
Z <- cbind(X * G[, 1], X * G[, 2], X * G[, 3])
B <- kronecker(matrix(1, 3, 3), diag(priors$beta_scale^2)) +
  kronecker(diag(3), diag(priors$group_scale^2))
d <- as.matrix(stats::dist(table[case$coords]))

runs <- list()
for (model in names(case$posterior$lengths)) {
  held <- model == "infinite"
  A <- rep(1, n)
  if (held) A[case$flagged + 1] <- 0
  own <- case$posterior
  lengths <- own$lengths[[model]]
  top <- priors$phi_bounds[2]
  data <- list(
    N = n, Q = ncol(Z), y = table$y, Z = Z, G = G, AA = outer(A, A), d_top = unname(d) * top,
    top = top, E1 = diag(G[, 1]), E2 = diag(G[, 2]), E3 = diag(G[, 3]), zero = rep(0, ncol(Z)),
    precision = solve(B), tau_precision = 1 / priors$tau^2, sigma_precision = 1 / priors$sigma^2,
    eta = priors$lkj_eta
  )
  data <- c(data, if (held) list(phi = case$held) else list(low = priors$phi_bounds[1]))
  spread <- exp(0.4 * seq(-1, 1, length.out = own$chains))
  used <- proc.time()
  begun <- used[["user.self"]] + used[["user.child"]]
  inits <- lapply(seq_len(own$chains), function(k) {
    phi <- if (held) case$held else own$start$phi * spread[own$chains + 1 - k]
    c(
      list(
        tau = rep(own$start$tau / spread[k], 3), ridge = rep(spread[k] * sqrt(phi), 3),
        half = rep(0.6, 3), .RNG.name = "base::Mersenne-Twister", .RNG.seed = own$seed + k + held
      ),
      if (!held) list(phi = phi)
    )
  })
  text <- paste0("model {", if (!held) FREE, MODEL, "}")
  wanted <- c("beta", "Covariance", "tau_sq", if (!held) "phi")
  # A chain a process: each iteration factors the covariance some fifty times.
  chains <- parallel::mclapply(inits, function(start) {
    fitted <- jags.model(textConnection(text), data, start, 1, n.adapt = 0, quiet = TRUE)
    adapt(fitted, lengths$warmup, end.adaptation = TRUE, progress.bar = "none")
    jags.samples(fitted, wanted, lengths$kept, progress.bar = "none")
  }, mc.cores = own$chains)
  at <- function(name, ...) sapply(chains, function(chain) unclass(chain[[name]])[..., , 1])
  draws <- list()
  for (k in 1:3) {
    for (j in 1:2) draws[[sprintf("beta_%d_%d", k - 1, j - 1)]] <- at("beta", 2 * (k - 1) + j)
    for (j in seq_len(k)) draws[[sprintf("T_%d_%d", k - 1, j - 1)]] <- at("Covariance", k, j)
    draws[[sprintf("tau_sq_%d", k - 1)]] <- at("tau_sq", k)
  }
  if (!held) draws$phi <- at("phi", 1)
  used <- proc.time()
  seconds <- used[["user.self"]] + used[["user.child"]] - begun
  runs[[model]] <- list(
    case = case$words, gamma = if (held) Inf else 0, seed = own$seed, chains = own$chains,
    warmup = lengths$warmup, kept = lengths$kept, seconds = round(seconds, 1), priors = priors,
    rhat = lapply(draws, posterior::rhat), quantities = lapply(draws, summaries)
  )
  cat(sprintf("multivariate_jags: %s, %.0f s\n", model, seconds))
}
output <- if (length(given)) given[1] else file.path(here, "golden", "multivariate_jags.json")
write_posteriors(
  output, "multivariate_jags", "rjags::jags.model, rjags::jags.samples",
  c(packages_of(c("rjags", "posterior")), list(JAGS = as.character(jags.version()))), runs
)
