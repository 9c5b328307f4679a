# Quantiles, R-hat, effective sample sizes and the energy diagnostic of fixed draws.
source(file.path("tests", "parity", "common.R"))
own <- begin("diagnostics", "posterior")$diagnostics

for (name in names(own$draws)) {
  draws <- t(own$draws[[name]])
  key <- gsub(" ", "-", name)
  record(paste0("rhat/", key), "R-hat is that of posterior", name, rhat(draws), "posterior::rhat")
  record(
    paste0("bulk/", key), "the bulk effective sample size is that of posterior", name,
    ess_bulk(draws), "posterior::ess_bulk"
  )
  record(
    paste0("tail/", key), "the tail effective sample size is that of posterior", name,
    ess_tail(draws), "posterior::ess_tail"
  )
  record(
    paste0("summary/", key), "a fit's summary has R's mean, sd and quantiles", name,
    c(mean(draws), sd(draws), quantile(draws, c(0.025, 0.5, 0.975), type = 7, names = FALSE)),
    "stats::quantile (type 7), stats::sd, base::mean",
    measure = "scaled"
  )
  record(
    paste0("judged/", key), "a fit's summary has posterior's effective sizes and R-hat", name,
    c(ess_bulk(draws), ess_tail(draws), rhat(draws)),
    "posterior::ess_bulk, posterior::ess_tail, posterior::rhat"
  )
}
energy <- own$energy
bfmi <- apply(energy, 1, function(e) sum(diff(e)^2) / sum((e - mean(e))^2))
record("bfmi", "the energy diagnostic is the smallest over the chains", "four chains",
  min(bfmi), "formula (Betancourt 2016)"
)
stopifnot(length(unique(bfmi)) > 1)
finish()
