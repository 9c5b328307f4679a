# The paper's Gibbs sampler, in R and w*: equations full, part, hier and restrict.
#
# State: beta, w*, sigma_sq, tau_sq, phi. w* = A w has one value a site and the prior of equation
# part, N(0, sigma_sq A R A); its full conditional is equation full with that covariance. Where
# gamma is infinite w* of a flagged record is zero and its w comes from the conditional prior
# given the others. Two moves keep w fixed, two keep w / sigma or the white noise behind w fixed:
# each leaves the posterior as it is, and together they mix where one kind alone creeps.
source(file.path("tests", "parity", "posterior_common.R"))

ACCEPTED <- 0.4

#' Sufficient sums of the data, the sites that carry an effect first.
gibbs_data <- function(data, gamma) {
  A <- smoothing(gamma, data$a)
  A_site <- A[match(seq_len(nrow(data$d)), data$site)]
  stopifnot(A_site[data$site] == A)
  live <- which(A_site > 0)
  Z <- matrix(0, length(data$y), nrow(data$d))
  Z[cbind(seq_along(data$y), data$site)] <- 1
  Z <- Z[, live, drop = FALSE]
  c(data, list(
    A = A, A_live = A_site[live], live = live, dead = which(A_site == 0), Z = Z,
    count = colSums(Z), ZX = crossprod(Z, data$X), Zy = as.vector(crossprod(Z, data$y)),
    XX = crossprod(data$X), Xy = as.vector(crossprod(data$X, data$y)),
    carried = carried_by(A, gamma)[data$outlier]
  ))
}

#' Everything that depends on phi: U'U = R among live sites, its log determinant and inverse.
at_phi <- function(g, phi) {
  U <- chol(exp(-phi * g$d[g$live, g$live]))
  list(phi = phi, U = U, log_det = 2 * sum(log(diag(U))), inverse = NULL)
}

#' The same with the inverse of A R A, made only for a phi that is accepted.
with_inverse <- function(g, R) {
  if (is.null(R$inverse)) R$inverse <- chol2inv(R$U) / outer(g$A_live, g$A_live)
  R
}

#' White noise u behind w* = sigma A U'u.
whitened <- function(g, s) backsolve(s$R$U, s$w / g$A_live, transpose = TRUE) / sqrt(s$sigma_sq)

#' Residuals y - X beta - w*.
residuals_of <- function(g, s, w = s$w) g$y - as.vector(g$X %*% s$beta) - as.vector(g$Z %*% w)

#' Whether the ratio of the variances is in the range to which the prior is cut.
inside <- function(sigma_sq, tau_sq) {
  r <- tau_sq / sigma_sq
  r >= R_BOUNDS[1] && r <= R_BOUNDS[2]
}

#' beta with w* integrated out, then w* by equation full: one draw of both.
draw_effects <- function(g, s) {
  Q <- s$R$inverse / s$sigma_sq
  diag(Q) <- diag(Q) + g$count / s$tau_sq
  U <- chol(Q)
  solved <- backsolve(U, cbind(g$ZX, g$Zy), transpose = TRUE) / s$tau_sq
  p <- ncol(g$X)
  towards <- solved[, seq_len(p), drop = FALSE]
  precision <- g$XX / s$tau_sq - crossprod(towards)
  diag(precision) <- diag(precision) + 1 / g$priors$beta^2
  pull <- g$Xy / s$tau_sq - as.vector(crossprod(towards, solved[, p + 1]))
  V <- chol(precision)
  s$beta <- backsolve(V, backsolve(V, pull, transpose = TRUE) + rnorm(p))
  centre <- solved[, p + 1] - as.vector(towards %*% s$beta)
  s$w <- backsolve(U, centre + rnorm(length(g$live)))
  s
}

#' A variance whose root is half-normal: an inverse gamma draw, kept with the prior's weight.
draw_variance <- function(old, n, squares, scale) {
  new <- 1 / rgamma(1, (n - 1) / 2, squares / 2)
  if (log(runif(1)) < (old - new) / (2 * scale^2)) new else old
}

#' Both variances given w* and beta.
draw_variances <- function(g, s) {
  tau_sq <- draw_variance(s$tau_sq, length(g$y), sum(residuals_of(g, s)^2), g$priors$root)
  if (inside(s$sigma_sq, tau_sq)) s$tau_sq <- tau_sq
  squares <- sum(s$w * (s$R$inverse %*% s$w))
  sigma_sq <- draw_variance(s$sigma_sq, length(g$live), squares, g$priors$root)
  if (inside(sigma_sq, s$tau_sq)) s$sigma_sq <- sigma_sq
  s
}

#' sigma while w / sigma stays: a normal likelihood and prior, cut at zero.
rescale <- function(g, s) {
  u <- s$w / sqrt(s$sigma_sq)
  direction <- as.vector(g$Z %*% u)
  precision <- sum(direction^2) / s$tau_sq + 1 / g$priors$root^2
  centre <- sum(direction * (g$y - as.vector(g$X %*% s$beta))) / s$tau_sq / precision
  spread <- 1 / sqrt(precision)
  below <- pnorm(0, centre, spread)
  sigma <- qnorm(below + runif(1) * (1 - below), centre, spread)
  if (sigma > 0 && is.finite(sigma) && inside(sigma^2, s$tau_sq)) {
    s$sigma_sq <- sigma^2
    s$w <- sigma * u
  }
  s
}

#' A random walk of log phi; `held` says what stays: "w" (and sigma_sq phi), or "noise".
move_phi <- function(g, s, held) {
  phi <- s$phi * exp(s$step[[held]] * rnorm(1))
  s$took[[held]] <- 0
  if (phi < g$priors$phi[1] || phi > g$priors$phi[2]) return(s)
  R <- at_phi(g, phi)
  if (held == "noise") {
    w <- sqrt(s$sigma_sq) * g$A_live * as.vector(crossprod(R$U, whitened(g, s)))
    before <- sum(residuals_of(g, s)^2)
    gain <- (before - sum(residuals_of(g, s, w)^2)) / (2 * s$tau_sq) + log(phi / s$phi)
    sigma_sq <- s$sigma_sq
  } else {
    w <- s$w
    sigma_sq <- s$sigma_sq * s$phi / phi
    if (!inside(sigma_sq, s$tau_sq)) return(s)
    density <- function(R, v) {
      squares <- sum(backsolve(R$U, s$w / g$A_live, transpose = TRUE)^2)
      -(R$log_det + length(g$live) * log(v) + squares / v) / 2 - log(v) / 2 -
        v / (2 * g$priors$root^2)
    }
    # In (log phi, log sigma_sq) the move is a shear; phi sigma_sq, the Jacobian, stays.
    gain <- density(R, sigma_sq) - density(s$R, s$sigma_sq)
  }
  if (log(runif(1)) < gain) {
    s$took[[held]] <- 1
    s[c("phi", "sigma_sq", "w")] <- list(phi, sigma_sq, w)
    s$R <- with_inverse(g, R)
  }
  s
}

#' w at all sites: w* / A, and for fully smoothed sites the conditional prior.
full_effect <- function(g, s) {
  w <- numeric(nrow(g$d))
  w[g$live] <- s$w / g$A_live
  if (length(g$dead)) {
    # A is 1 elsewhere, so R's inverse among live sites is at hand.
    cross <- exp(-s$phi * g$d[g$dead, g$live, drop = FALSE])
    weights <- cross %*% s$R$inverse
    own <- exp(-s$phi * g$d[g$dead, g$dead, drop = FALSE]) - tcrossprod(weights, cross)
    w[g$dead] <- weights %*% w[g$live] +
      sqrt(s$sigma_sq) * as.vector(crossprod(chol(own), rnorm(length(g$dead))))
  }
  w
}

#' One chain; the steps of phi are tuned in warm-up only.
gibbs_chain <- function(g, held, lengths, start) {
  phi <- if (held) g$phi else start$phi
  s <- list(
    beta = qr.solve(g$X, g$y), sigma_sq = start$sigma^2, tau_sq = start$tau^2, phi = phi,
    w = rep(0, length(g$live)), R = with_inverse(g, at_phi(g, phi)),
    step = list(w = 0.3, noise = 0.3), took = list(w = 0, noise = 0)
  )
  kept <- matrix(NA_real_, lengths$kept, ncol(g$X) + 4 + length(g$watched))
  for (t in seq_len(lengths$warmup + lengths$kept)) {
    s <- rescale(g, draw_variances(g, draw_effects(g, s)))
    for (fixed in if (held) character() else c("w", "noise")) {
      s <- move_phi(g, s, fixed)
      if (t <= lengths$warmup) {
        s$step[[fixed]] <- s$step[[fixed]] * exp((s$took[[fixed]] - ACCEPTED) / t^0.6)
      }
    }
    if (t <= lengths$warmup) next
    w <- full_effect(g, s)
    copy <- sum(g$X[g$outlier, ] * s$beta) + g$carried * w[g$site[g$outlier]] +
      sqrt(s$tau_sq) * rnorm(1)
    kept[t - lengths$warmup, ] <- c(
      s$beta, s$sigma_sq, s$tau_sq, s$phi, w[g$site[g$watched]], copy
    )
  }
  kept
}

#' Draws of one posterior, a sampler as run_posteriors takes it.
by_gibbs <- function(data, gamma, held, lengths, starts, seed) {
  g <- gibbs_data(data, gamma)
  chains <- lapply(seq_along(starts), function(k) {
    set.seed(seed + k)
    gibbs_chain(g, held, lengths, starts[[k]])
  })
  names <- c(
    paste0("beta_", seq_len(ncol(data$X)) - 1), "sigma_sq", "tau_sq", "phi",
    paste0("w_", data$watched - 1), "copy"
  )
  draws <- lapply(seq_along(names), function(j) sapply(chains, function(kept) kept[, j]))
  names(draws) <- names
  if (held) draws$phi <- NULL
  draws
}

run_posteriors(
  "posterior_gibbs", "stats::rnorm, stats::rgamma, base::chol", character(), "homes", by_gibbs
)
