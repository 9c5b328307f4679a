# A time and groups in the spatial effect: nlme where one of its models coincides, and the normal law.
source(file.path("tests", "parity", "common.R"))
inputs <- begin("panel", c("fields", "mvtnorm", "nlme"))$panel
table <- as.data.frame(inputs$columns)
words <- sprintf("%d records, %d years a place", nrow(table), length(unique(table$year)))

# All three parts at once, the correlation written out.
d <- rdist(as.matrix(table[c("a", "b")]))
lag <- abs(outer(table$year, table$year, "-"))
one <- outer(table$zip, table$zip, "==")
X <- cbind(1, table$x)
log_density <- function(p) {
  R <- (1 - p$q) * Exponential(d, range = 1 / p$phi) * exp(-p$c * lag) + p$q * one
  V <- p$sigma_sq * (R + p$r * diag(nrow(d)))
  dmvnorm(table$y, as.vector(X %*% c(2, 0.5)), V, log = TRUE)
}
points <- inputs$points
record_density(
  "response/all", "the surface gives the response's log density with a time and groups", words,
  vapply(seq_len(nrow(points)), function(i) log_density(points[i, ]), numeric(1)),
  "mvtnorm::dmvnorm, fields::Exponential"
)

# Where places or times are as good as unrelated, nlme has the model: its highest likelihood at
# given correlations, then its own maximum.
share <- inputs$r / (1 + inputs$r)
laws <- list(
  group = function(fixed) {
    corCompSymm(inputs$q / (1 + inputs$r), form = ~ 1 | zip, fixed = fixed)
  },
  time = function(fixed) {
    corExp(c(1 / inputs$c, share), form = ~ year | place, nugget = TRUE, fixed = fixed)
  },
  space = function(fixed) {
    corExp(c(1 / inputs$phi, share), form = ~ a + b | year, nugget = TRUE, fixed = fixed)
  }
)
sources <- c(group = "corCompSymm", time = "corExp", space = "corExp")
for (name in names(laws)) {
  found <- gls(y ~ x, table, correlation = laws[[name]](TRUE), method = "ML")
  record_density(
    paste0("profile/", name), "the likelihood at the best coefficients and variance is nlme's",
    sprintf("%s, the correlation of %s", words, name), as.numeric(logLik(found)),
    sprintf("nlme::gls, nlme::%s", sources[[name]])
  )
  record(
    paste0("beta/", name), "the coefficients of generalised least squares are nlme's",
    sprintf("%s, the correlation of %s", words, name), unname(coef(found)),
    sprintf("nlme::gls, nlme::%s", sources[[name]]),
    reason = REASON_SOLVE
  )
}
TOP <- paste(
  "each optimiser stops within its tolerance of the top, and the height there differs by the",
  "square of it"
)
control <- glsControl(tolerance = 1e-12, msTol = 1e-14, maxIter = 500, msMaxIter = 500)
found <- gls(y ~ x, table, correlation = laws$time(FALSE), method = "ML", control = control)
record_density(
  "highest/time", "the most likely decay in time has nlme's highest likelihood",
  paste(words, "the correlation of time", sep = ", "), as.numeric(logLik(found)),
  "nlme::gls, nlme::corExp",
  tolerance = 1e-6, reason = TOP
)
control <- lmeControl(tolerance = 1e-12, msTol = 1e-14, maxIter = 500, msMaxIter = 500)
found <- lme(y ~ x, table, random = ~ 1 | zip, method = "ML", control = control)
record_density(
  "highest/group", "the most likely share of the groups has the highest likelihood of lme",
  paste(words, "a random intercept", sep = ", "), as.numeric(logLik(found)), "nlme::lme",
  tolerance = 1e-6, reason = TOP
)
finish()
