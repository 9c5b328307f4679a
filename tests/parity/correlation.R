# The exponential correlation, the smoothing matrix A, and the covariances of all protections.
source(file.path("tests", "parity", "common.R"))
cases <- begin("correlation", c("fields", "gstat"), "cases")$cases

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
finish()
