# Correlation functions, the smoothing matrix A, and the covariances of all protections.
source(file.path("tests", "parity", "common.R"))
cases <- begin("correlation", c("fields", "gstat", "mvtnorm"), "cases")$cases

case <- cases$hand
data <- case_data(case)
p <- points_of(case$off_nodes)[[1]]
d <- rdist(data$sites)
record(
  "exponential/fields", "the correlation is the exponential model of fields", case$words,
  Exponential(d, range = 1 / p$phi), "fields::Exponential"
)
line <- variogramLine(vgm(1, "Exp", 1 / p$phi), dist_vector = d, covariance = TRUE)
record(
  "exponential/gstat", "the correlation is the exponential model of gstat", case$words,
  line, "gstat::vgm, gstat::variogramLine"
)

for (gamma in names(GAMMAS)) {
  A <- smoothing(GAMMAS[[gamma]], data$a)
  words <- sprintf("%s, gamma %s", case$words, gamma)
  record(
    paste0("A/", gamma), "the diagonal of A follows its formula", words, A, "formula"
  )
  for (protection in PROTECTIONS) {
    rows <- informing(A, protection)
    words <- sprintf("%s, %s, gamma %s", case$words, protection, gamma)
    record(
      sprintf("V/%s/%s", protection, gamma),
      "the covariance of the response is A R A and the protection's noise",
      words, response_covariance(data$sites, A, protection, p), "fields::Exponential"
    )
  }
  # Smoothed effects w* = A w by a simulation-free route: gstat's covariances, scaled.
  smoothed <- outer(A, A) * variogramLine(
    vgm(p$sigma_sq, "Exp", 1 / p$phi), dist_vector = d, covariance = TRUE
  )
  record(
    paste0("ARA/", gamma), "the covariance of the smoothed effect is A K A",
    sprintf("%s, gamma %s", case$words, gamma), smoothed, "gstat::vgm, gstat::variogramLine"
  )
}

# Matern of smoothness 3/2 and 5/2, in the scale where the range of fields is 1 / phi.
SMOOTHNESS <- list(matern32 = 1.5, matern52 = 2.5)
points <- c(points_of(case$at_nodes), points_of(case$off_nodes))
for (name in names(SMOOTHNESS)) {
  nu <- SMOOTHNESS[[name]]
  matern <- function(d, phi) Matern(d, range = 1 / phi, smoothness = nu)
  for (side in c("python", "stan")) {
    record(
      paste(name, side, sep = "/"), "the correlation is the Matern model of fields",
      sprintf("%s, smoothness %g", case$words, nu), matern(d, p$phi), "fields::Matern"
    )
  }
  for (c in c(0.05, 0.20, 0.50)) {
    found <- uniroot(
      function(h) matern(h, p$phi) - c, c(0, 50 / p$phi),
      tol = 1e-14 / p$phi, maxiter = 1e4
    )
    record(
      sprintf("%s/distance/%g", name, c),
      "the distance at which the correlation has fallen to c solves its equation",
      sprintf("c = %g, smoothness %g; 0.05 gives the effective range, 0.2 the paper's M", c, nu),
      found$root, "fields::Matern, stats::uniroot",
      tolerance = OPTIMISED, reason = "R's root finder stops within its tolerance"
    )
  }
  for (gamma in names(GAMMAS)) {
    A <- smoothing(GAMMAS[[gamma]], data$a)
    for (protection in PROTECTIONS) {
      rows <- informing(A, protection)
      kept <- A[rows]
      log_density <- function(q) {
        noise <- rep(q$tau_sq, length(rows))
        if (protection == "preserving") noise <- noise + q$sigma_sq * (1 - kept^2)
        R <- matern(rdist(data$sites[rows, ]), q$phi)
        V <- q$sigma_sq * outer(kept, kept) * R + diag(noise)
        centre <- as.vector(data$X[rows, , drop = FALSE] %*% q$beta)
        dmvnorm(data$y[rows], centre, V, log = TRUE)
      }
      record_density(
        sprintf("%s/response/%s/%s", name, protection, gamma),
        "node_statistics give the response's log density with Matern's correlation",
        sprintf("%s, smoothness %g, %s, gamma %s", case$words, nu, protection, gamma),
        vapply(points, log_density, numeric(1)), "mvtnorm::dmvnorm, fields::Matern"
      )
    }
  }
}
finish()
