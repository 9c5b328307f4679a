# The log density of the response where weights and gamma follow the parameters, by mvtnorm.
source(file.path("tests", "parity", "common.R"))
read <- begin("adaptive", c("mvtnorm", "fields", "FNN"), c("cases", "density"))
own <- read$density
prior <- own$half_normal

half_normal <- function(v, scale) {
  log(2) + dnorm(sqrt(v), 0, scale, log = TRUE) - log(2 * sqrt(v))
}

MODELS <- list(exponential = 0.5, matern32 = 1.5, matern52 = 2.5)

#' Correlation by fields.
correlation <- function(d, phi, nu) {
  if (nu == 0.5) Exponential(d, range = 1 / phi) else Matern(d, range = 1 / phi, smoothness = nu)
}

#' Diagonal of A under each rule.
diagonal <- function(rule, nearest, p, nu) {
  r <- p$tau_sq / p$sigma_sq
  if (rule == "step") {
    # c = 0.20, width 0.25, gamma 4: the share of the variance kept falls from 1 to 1 / 5.
    M <- uniroot(
      function(h) correlation(h, p$phi, nu) - 0.20, c(0, 50 / p$phi),
      tol = 1e-14 / p$phi
    )$root
    s <- 1 / (1 + (M / nearest)^4)
    return(sqrt(1 - s * 4 / 5))
  }
  alpha <- if (rule == "alpha") 0.2 else 0.5
  gamma <- max(0, (p$sigma_sq / p$tau_sq) * (1 - alpha) / alpha - 1)
  1 / sqrt(1 + gamma * (1 - correlation(nearest, p$phi, nu)))
}

for (name in c("hand", "simulated")) {
  case <- read$cases[[name]]
  data <- case_data(case)
  nearest <- get.knn(data$sites, k = 1)$nn.dist[, 1]
  points <- c(points_of(case$at_nodes), points_of(case$off_nodes))
  for (model in names(MODELS)) {
    if (name == "simulated" && model != "exponential") next
    nu <- MODELS[[model]]
    for (rule in c("ratio", "alpha", "step")) {
      for (protection in c("paper", "preserving")) {
        value <- vapply(points, function(p) {
          A <- diagonal(rule, nearest, p, nu)
          noise <- rep(p$tau_sq, length(A))
          if (protection == "preserving") noise <- noise + p$sigma_sq * (1 - A^2)
          V <- p$sigma_sq * outer(A, A) * correlation(rdist(data$sites), p$phi, nu) + diag(noise)
          dmvnorm(data$y, as.vector(data$X %*% p$beta), V, log = TRUE)
        }, numeric(1))
        record_density(
          paste("response", name, model, rule, protection, sep = "/"),
          "with adaptive weights the response's log density is that of mvtnorm",
          sprintf("%s, %s, rule %s, %s", case$words, model, rule, protection), value,
          "mvtnorm::dmvnorm, fields::Exponential, fields::Matern"
        )
        if (name == "simulated" || model == "matern52") next
        full <- value + vapply(points, function(p) {
          sum(dnorm(p$beta, 0, own$beta_scale[seq_along(p$beta)], log = TRUE)) +
            half_normal(p$sigma_sq, prior$sigma) + half_normal(p$tau_sq, prior$tau) +
            dunif(p$phi, case$phi_bounds[1], case$phi_bounds[2], log = TRUE)
        }, numeric(1))
        record_density(
          paste("program", model, rule, protection, sep = "/"),
          "adaptive.stan, or surface.stan for a step, gives the complete log density",
          sprintf("%s, %s, rule %s, %s", case$words, model, rule, protection), full,
          "mvtnorm::dmvnorm, stats::dnorm"
        )
      }
    }
  }
}
finish()
