# The spatial effect given y: mean and variance at the records and at other places, and the law
# of a synthetic value.
#
# gstat takes each site's measurement error variance as 1 / weights (with a nugget in the
# variogram it would predict the error too, and it averages records at one site as if they were
# one). With y - X beta divided by A the model is y_i / A_i = w_i + error of variance D_ii /
# A_i^2; records at one site are merged by precision, records with A_i = 0 say nothing.
source(file.path("tests", "parity", "common.R"))
cases <- begin("latent", c("gstat", "sp", "fields"), "cases")$cases

observations <- function(data, A, protection, p) {
  rows <- informing(A, protection)
  variance <- rep(p$tau_sq, length(A))
  if (protection == "preserving") variance <- variance + p$sigma_sq * (1 - A^2)
  rows <- rows[A[rows] > 0]
  precision <- (A^2 / variance)[rows]
  scaled <- ((data$y - data$X %*% p$beta) / A)[rows]
  sites <- data$sites[rows, , drop = FALSE]
  key <- paste(sites[, 1], sites[, 2])
  site <- match(key, unique(key))
  weight <- as.vector(tapply(precision, site, sum))
  list(
    sites = unique(sites), weight = weight,
    value = as.vector(tapply(precision * scaled, site, sum)) / weight
  )
}

by_gstat <- function(o, places, p) {
  from <- data.frame(u = o$sites[, 1], v = o$sites[, 2], value = o$value)
  to <- data.frame(u = places[, 1], v = places[, 2])
  coordinates(from) <- ~ u + v
  coordinates(to) <- ~ u + v
  krige(value ~ 1, from, to,
    model = vgm(p$sigma_sq, "Exp", 1 / p$phi), beta = 0, weights = o$weight, debug.level = 0
  )
}

by_fields <- function(o, places, p, covariance = list(Covariance = "Exponential")) {
  fit <- mKrig(o$sites, o$value,
    weights = o$weight * p$tau_sq, m = 0, lambda = p$tau_sq / p$sigma_sq, find.trA = FALSE,
    cov.function = "stationary.cov",
    cov.args = c(covariance, aRange = 1 / p$phi)
  )
  as.vector(predict(fit, places))
}

# Full covariance of w: no package here returns it.
covariance <- function(data, A, protection, p) {
  rows <- informing(A, protection)
  K <- p$sigma_sq * Exponential(rdist(data$sites), range = 1 / p$phi)
  KA <- K[, rows] %*% diag(A[rows])
  K - KA %*% solve(response_covariance(data$sites, A, protection, p), t(KA))
}

GSTAT <- "gstat::krige with weights"
for (name in names(cases)) {
  case <- cases[[name]]
  data <- case_data(case)
  p <- points_of(case$off_nodes)[[1]]
  for (protection in PROTECTIONS) {
    for (gamma in names(GAMMAS)) {
      if (name == "baltimore" && protection != "paper") next
      A <- smoothing(GAMMAS[[gamma]], data$a)
      words <- sprintf("%s, %s, gamma %s", case$words, protection, gamma)
      key <- paste(protection, gamma, name, sep = "/")
      o <- observations(data, A, protection, p)
      here_krige <- by_gstat(o, data$sites, p)
      mean <- here_krige$var1.pred
      variance <- here_krige$var1.var
      record(
        paste0("mean/gstat/", key), "the mean of w given y is gstat's simple kriging", words,
        mean, GSTAT,
        measure = "scaled", reason = REASON_SOLVE
      )
      record(
        paste0("mean/fields/", key), "the mean of w given y is the prediction of fields", words,
        by_fields(o, data$sites, p), "fields::mKrig, fields::predict",
        measure = "scaled", reason = REASON_SOLVE
      )
      record(
        paste0("variance/", key), "the variance of w given y is gstat's kriging variance", words,
        variance, GSTAT,
        measure = "scaled", reason = REASON_SOLVE
      )
      record(
        paste0("places/gstat/", key), "the predicted surface is gstat's simple kriging", words,
        by_gstat(o, case$places, p)$var1.pred, GSTAT,
        measure = "scaled", reason = REASON_SOLVE
      )
      record(
        paste0("places/fields/", key), "the predicted surface is the prediction of fields", words,
        by_fields(o, case$places, p), "fields::mKrig, fields::predict",
        measure = "scaled", reason = REASON_SOLVE
      )
      if (name == "hand") {
        record(
          paste0("covariance/", key), "the covariance of w given y follows its formula", words,
          covariance(data, A, protection, p), "base::solve, fields::Exponential",
          measure = "scaled", reason = REASON_SOLVE
        )
      }
      # Copies carry w, except w* under paper where 0 < gamma < infinity.
      partial <- protection == "paper" && any(A > 0 & A < 1)
      carried <- if (partial) ifelse(A == 0, 1, A) else rep(1, length(A))
      record(
        paste0("copy/mean/", key), "a copy's mean is X beta and the effect it carries", words,
        as.vector(data$X %*% p$beta) + carried * mean, GSTAT,
        measure = "scaled", reason = REASON_SOLVE
      )
      record(
        paste0("copy/variance/", key), "a copy's variance is that of the effect, and the nugget",
        words, carried^2 * variance + p$tau_sq, GSTAT,
        measure = "scaled", reason = REASON_SOLVE
      )
    }
  }
}

# Matern's correlation instead of the exponential.
case <- cases$hand
data <- case_data(case)
p <- points_of(case$off_nodes)[[1]]
for (name in c("matern32", "matern52")) {
  nu <- c(matern32 = 1.5, matern52 = 2.5)[[name]]
  for (protection in PROTECTIONS) {
    for (gamma in names(GAMMAS)) {
      A <- smoothing(GAMMAS[[gamma]], data$a)
      o <- observations(data, A, protection, p)
      for (where in c("mean", "places")) {
        record(
          paste(name, where, protection, gamma, sep = "/"),
          "with Matern's correlation the mean of w given y is the prediction of fields",
          sprintf("%s, smoothness %g, %s, gamma %s", case$words, nu, protection, gamma),
          by_fields(
            o, if (where == "mean") data$sites else case$places, p,
            list(Covariance = "Matern", smoothness = nu)
          ),
          "fields::mKrig, fields::predict",
          measure = "scaled", reason = REASON_SOLVE
        )
      }
    }
  }
}
finish()
