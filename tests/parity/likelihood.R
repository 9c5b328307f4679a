# Maximum likelihood of (beta, sigma_sq, tau_sq, phi), and the likelihood at given parameters.
#
# nlme's corExp writes the correlation of two records as (1 - nugget) exp(-d / range), so that
# sigma_sq = (1 - nugget) total and tau_sq = nugget total. It refuses records at one site.
source(file.path("tests", "parity", "common.R"))
read <- begin("likelihood", c("nlme", "fields"), c("cases", "likelihood"))
cases <- read$likelihood
cases$baltimore <- c(read$cases$baltimore, cases$baltimore)

ESTIMATE <- 1e-5
REASON_ESTIMATE <- paste(
  "R's optimiser works with numerical gradients and stops where the log likelihood is flat to",
  "its rounding, 1e-11: the square root of that is what the maximum's place is known to"
)
REASON_MAXIMUM <- paste(
  "the log likelihood is flat at its maximum, so neither optimiser's last step shows; over the",
  "range searched the surface interpolates to better than 1e-9"
)

for (name in names(cases)) {
  case <- cases[[name]]
  data <- case_data(case)
  sites <- setNames(as.data.frame(data$sites), c("u", "v"))
  table <- data.frame(sites, y = data$y, x = data$X[, -1, drop = FALSE])
  formula <- reformulate(grep("^x", names(table), value = TRUE), "y")
  n <- nrow(table)

  known <- corExp(unlist(case$start), form = ~ u + v, nugget = TRUE, fixed = TRUE)
  fit <- gls(formula, table, method = "ML", correlation = known)
  words <- sprintf(
    "%s, range %g, nugget share %g", case$words, case$start$range, case$start$nugget
  )
  SOURCE <- "nlme::gls, nlme::corExp (fixed)"
  record(
    paste0("known/beta/", name), "generalised least squares with a known correlation", words,
    unname(coef(fit)), SOURCE,
    reason = REASON_SOLVE
  )
  record(
    paste0("known/total/", name), "the variance at its best for a known correlation", words,
    fit$sigma^2, SOURCE,
    reason = REASON_SOLVE
  )
  # vcov.gls multiplies by n / (n - P) under ML; that undone, sigma^2 (X' C^-1 X)^-1 stays.
  record(
    paste0("known/covariance/", name), "the covariance of generalised least squares", words,
    unname(vcov(fit)) * (n - ncol(data$X)) / n, SOURCE,
    measure = "scaled", reason = REASON_SOLVE
  )
  record_density(
    paste0("known/likelihood/", name), "the log likelihood at a known correlation", words,
    as.numeric(logLik(fit)), SOURCE
  )

  free <- corExp(unlist(case$start), form = ~ u + v, nugget = TRUE)
  tight <- glsControl(tolerance = 1e-12, msTol = 1e-12, maxIter = 500, msMaxIter = 500)
  best <- gls(formula, table, method = "ML", correlation = free, control = tight)
  shape <- coef(best$modelStruct$corStruct, unconstrained = FALSE)
  total <- best$sigma^2
  SOURCE <- "nlme::gls, nlme::corExp (ML)"
  CLAIM <- "the surface's maximum likelihood estimates of"
  record(
    paste0("nlme/beta/", name), paste(CLAIM, "beta are those of nlme"), case$words,
    unname(coef(best)), SOURCE,
    tolerance = ESTIMATE, reason = REASON_ESTIMATE
  )
  record(
    paste0("nlme/variances/", name),
    paste(CLAIM, "sigma_sq, tau_sq and phi are those of nlme"), case$words,
    unname(c(total * (1 - shape[2]), total * shape[2], 1 / shape[1])), SOURCE,
    tolerance = ESTIMATE, reason = REASON_ESTIMATE
  )
  record_density(
    paste0("nlme/maximum/", name), "the surface's largest log likelihood is that of nlme",
    case$words, as.numeric(logLik(best)), SOURCE,
    reason = REASON_MAXIMUM
  )

  start <- list(aRange = case$start$range, lambda = case$start$nugget)
  joint <- mKrigMLEJoint(data$sites, data$y,
    Z = data$X[, -1, drop = FALSE], mKrig.args = list(m = 1),
    cov.args = list(Covariance = "Exponential"), cov.params.start = start,
    optim.args = list(method = "BFGS", control = list(
      reltol = 1e-15, fnscale = -1, parscale = c(1, 1), ndeps = c(1e-4, 1e-4), maxit = 500
    ))
  )$summary
  SOURCE <- "fields::mKrigMLEJoint"
  record(
    paste0("fields/variances/", name),
    paste(CLAIM, "sigma_sq, tau_sq and phi are those of fields"), case$words,
    unname(c(joint["sigma2"], joint["tau"]^2, 1 / joint["aRange"])), SOURCE,
    tolerance = ESTIMATE, reason = REASON_ESTIMATE
  )
  record_density(
    paste0("fields/maximum/", name), "the surface's largest log likelihood is that of fields",
    case$words, unname(joint["lnProfileLike.FULL"]), SOURCE,
    reason = REASON_MAXIMUM
  )
}
finish()
