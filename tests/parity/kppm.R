# Slopes of log-Gaussian Cox processes by kppm, for tests/models/test_intensity_posterior.py.
#
# Rscript tests/parity/kppm.R <patterns.json> <slopes.json>
suppressPackageStartupMessages(library(spatstat.model))
files <- commandArgs(trailingOnly = TRUE)
given <- jsonlite::read_json(files[1], simplifyVector = TRUE)
side <- nrow(given$height)
window <- owin(c(0, side), c(0, side))
height <- im(given$height, xrange = c(0, side), yrange = c(0, side))
slopes <- apply(given$patterns, 1, function(places) {
  pattern <- ppp(places[, 1], places[, 2], window)
  fit <- kppm(pattern ~ height, "LGCP", model = "exponential")
  unname(coef(fit)[["height"]])
})
writeLines(jsonlite::toJSON(slopes, digits = NA), files[2])
