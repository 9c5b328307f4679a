# The posterior with weights and gamma inside the sampler, by JAGS, the spatial effect integrated
# out: y ~ N(X beta, sigma_sq A R A + tau_sq I), a_i = 1 - exp(-phi d_i) and
# gamma = max(0, sigma_sq / tau_sq - 1), section 6 of Quick, Holan and Wikle (2018).
source(file.path("tests", "parity", "posterior_common.R"))
suppressPackageStartupMessages(library(rjags))
suppressPackageStartupMessages(library(posterior))
load.module("glm", quiet = TRUE)

# JAGS has no exp of a matrix: R = rho^(d * top), as in posterior_jags.R. Along
# sigma_sq phi = constant the likelihood hardly changes, so the chain moves sigma sqrt(phi). A has
# a second column of zeros because JAGS takes no outer product of a vector.
MODEL <- "model {
  beta ~ dnorm(0, beta_precision)
  tau ~ dnorm(0, root_precision) T(0, )
  phi ~ dunif(low, top)
  ridge ~ dnorm(0, root_precision / phi) T(0, )
  sigma <- ridge / sqrt(phi)
  sigma_sq <- sigma * sigma
  tau_sq <- tau * tau
  gamma <- max(0, sigma_sq / tau_sq - 1)
  rho <- exp(-phi / top)
  a[1:N] <- 1 - pow(rho, nearest_top)
  A[1:N, 1] <- 1 / sqrt(1 + gamma * a)
  A[1:N, 2] <- 0 * one
  V[1:N, 1:N] <- sigma_sq * (A[1:N, 1:2] %*% t(A[1:N, 1:2])) * pow(rho, d_top) + tau_sq * identity
  y[1:N] ~ dmnorm.vcov(beta * one, V[1:N, 1:N])
}"

case <- begin("posterior_adaptive", c("rjags", "posterior", "FNN"), "posterior")$posterior$simulated
case$rows <- case$rows[c(1:76, 117:120)]
case$outlier <- 79
case$watched <- 79
data <- posterior_data(case)
sites <- as.matrix(simulated_table()[rows_of(case, simulated_table()), case$coords])
stopifnot(!anyDuplicated(data$site), ncol(data$X) == 1)
N <- length(data$y)
nearest <- FNN::get.knn(sites, k = 1)$nn.dist[, 1]
top <- data$priors$phi[2]
given <- list(
  N = N, y = data$y, d_top = data$d * top, nearest_top = nearest * top, low = data$priors$phi[1],
  top = top, identity = diag(N), one = rep(1, N), beta_precision = 1 / data$priors$beta^2,
  root_precision = 1 / data$priors$root^2
)
CHAINS <- 4
KEPT <- 2000
starts <- lapply(starts_of(case, CHAINS, data$priors$phi, FALSE), function(s) {
  list(tau = s$tau, phi = s$phi, ridge = s$sigma * sqrt(s$phi), beta = mean(data$y))
})
inits <- lapply(seq_along(starts), function(k) {
  c(starts[[k]], .RNG.name = "base::Mersenne-Twister", .RNG.seed = 400000 + k)
})
begun <- proc.time()[["user.self"]]
model <- jags.model(textConnection(MODEL), given, inits, CHAINS, n.adapt = 0, quiet = TRUE)
adapt(model, 500, end.adaptation = TRUE, progress.bar = "none")
names <- c("beta", "sigma_sq", "tau_sq", "phi", "gamma")
got <- jags.samples(model, names, KEPT, progress.bar = "none")
seconds <- proc.time()[["user.self"]] - begun
draws <- stats::setNames(lapply(names, function(n) matrix(got[[n]], KEPT)), names)
run <- list(
  case = "80 simulated incomes, adaptive weights", chains = CHAINS, warmup = 500, kept = KEPT,
  seconds = round(seconds, 1), outside = mean(ratio_outside(draws)), rows = case$rows,
  priors = data$priors, rhat = lapply(draws, posterior::rhat),
  quantities = lapply(draws, summaries)
)
write_posteriors(
  file.path(here, "golden", "posterior_adaptive.json"), "posterior_adaptive",
  "rjags::jags.model, rjags::jags.samples",
  c(packages_of(c("rjags", "posterior", "FNN")), JAGS = as.character(jags.version())),
  list("simulated/adaptive" = run)
)
cat(sprintf("posterior_adaptive: %.0f s\n", seconds))
