# The log density of multivariate.stan, coefficients integrated out, at natural parameters.
source(file.path("tests", "parity", "common.R"))
case <- begin("multivariate", c("mvtnorm", "fields", "truncnorm"))$multivariate
table <- as.data.frame(case$columns)
priors <- case$priors
n <- nrow(table)
group <- table$group + 1
X <- unname(stats::model.matrix(stats::as.formula(case$formula), table))
Z <- do.call(cbind, lapply(1:3, function(k) X * (group == k)))
B <- kronecker(matrix(1, 3, 3), diag(priors$beta_scale^2)) +
  kronecker(diag(3), diag(priors$group_scale^2))
d <- fields::rdist(as.matrix(table[case$coords]))
a <- as.numeric(seq_len(n) %in% (case$flagged + 1))

# Correlation from its partial correlations, and the LKJ density by the vine of Lewandowski,
# Kurowicka and Joe (2009): independent betas on (-1, 1), taken to the entries of the correlation.
factor_of <- function(partial) {
  rest <- sqrt(1 - partial^2)
  rbind(
    c(1, 0, 0), c(partial[1], rest[1], 0), c(partial[2], rest[2] * partial[3], rest[2] * rest[3])
  )
}
lkj <- function(partial, eta) {
  shape <- c(eta + 0.5, eta + 0.5, eta)
  # The entry of rows 2 and 3 is p12 p13 + p23.1 sqrt((1 - p12^2)(1 - p13^2)).
  sum(dbeta((partial + 1) / 2, shape, shape, log = TRUE) - log(2)) -
    0.5 * sum(log(1 - partial[1:2]^2))
}
half_normal <- function(root, scale) {
  log(dtruncnorm(root, a = 0, mean = 0, sd = scale)) - log(2 * root)
}
correlations <- list(
  exponential = function(phi) Exponential(d, range = 1 / phi),
  matern32 = function(phi) Matern(d, range = 1 / phi, smoothness = 1.5),
  matern52 = function(phi) Matern(d, range = 1 / phi, smoothness = 2.5)
)
covariance <- function(p, A, protection, name) {
  F <- diag(p$sigma) %*% factor_of(p$partial)
  T <- F %*% t(F)
  noise <- p$tau[group]^2
  if (protection == "preserving") noise <- noise + diag(T)[group] * (1 - A^2)
  outer(A, A) * T[group, group] * correlations[[name]](p$phi) + diag(noise)
}
log_density <- function(p, A, protection, name, free) {
  rows <- informing(A, protection)
  V <- covariance(p, A, protection, name)[rows, rows]
  Zr <- Z[rows, ]
  total <- dmvnorm(table$y[rows], sigma = V + Zr %*% B %*% t(Zr), log = TRUE) +
    sum(half_normal(p$sigma, priors$sigma)) + sum(half_normal(p$tau, priors$tau)) +
    lkj(p$partial, priors$lkj_eta)
  if (free) total + dunif(p$phi, priors$phi_bounds[1], priors$phi_bounds[2], log = TRUE) else total
}
points <- lapply(seq_len(nrow(case$points)), function(i) {
  list(
    sigma = case$points$sigma[[i]], tau = case$points$tau[[i]], partial = case$points$partial[[i]],
    phi = case$points$phi[i]
  )
})
claim <- "the log density of multivariate.stan, coefficients integrated out"
for (name in names(correlations)) {
  record_density(
    paste0("free/", name), claim, sprintf("%s, phi free, %s", case$words, name),
    sapply(points, log_density, rep(1, n), "paper", name, TRUE),
    "mvtnorm::dmvnorm, fields::Matern, truncnorm::dtruncnorm"
  )
}
for (gamma in names(GAMMAS)) for (protection in PROTECTIONS) {
  record_density(
    sprintf("held/%s/%s", protection, gamma), claim,
    sprintf("%s, phi held, %s, gamma %s", case$words, protection, gamma),
    sapply(points, log_density, smoothing(GAMMAS[[gamma]], a), protection, "exponential", FALSE),
    "mvtnorm::dmvnorm, fields::Exponential, truncnorm::dtruncnorm"
  )
}
finish()
