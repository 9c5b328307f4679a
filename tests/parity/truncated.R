# The truncated normal distribution that bracketed responses need.
source(file.path("tests", "parity", "common.R"))
own <- begin("truncated", "truncnorm")$truncated
low <- as.numeric(own$low)
high <- as.numeric(own$high)

for (i in seq_along(own$mean)) {
  m <- own$mean[i]
  s <- own$sd[i]
  words <- sprintf("normal(%g, %g) from %g to %g", m, s, low[i], high[i])
  x <- qtruncnorm(own$share, low[i], high[i], m, s)
  record_density(
    sprintf("density/%d", i), "the log density is that of truncnorm", words,
    log(dtruncnorm(x, low[i], high[i], m, s)), "truncnorm::dtruncnorm",
    reason = "the logarithm of a density, divided by a difference of two tails"
  )
  record(
    sprintf("moments/%d", i), "mean and variance are those of truncnorm", words,
    c(etruncnorm(low[i], high[i], m, s), vtruncnorm(low[i], high[i], m, s)),
    "truncnorm::etruncnorm, truncnorm::vtruncnorm",
    tolerance = OPTIMISED,
    reason = "a difference of nearly equal tails: rounding is multiplied"
  )
  record(
    sprintf("quantile/%d", i), "quantiles are those of truncnorm", words, x,
    "truncnorm::qtruncnorm",
    tolerance = OPTIMISED, measure = "scaled",
    reason = "truncnorm finds a quantile by root search, to its tolerance"
  )
}
finish()
