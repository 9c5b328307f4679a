# Weighted estimates of a survey and their linearised variances.
source(file.path("tests", "parity", "common.R"))
read <- begin("survey", "survey", c("cases", "survey"))
case <- read$cases$baltimore
own <- read$survey
table <- as.data.frame(case$columns)
table$weight <- own$weight
table$group <- own$group
design <- svydesign(ids = ~1, weights = ~weight, data = table)
words <- paste(case$words, "with weights from 1 to 20")

fit <- svyglm(as.formula(case$formula), design)
record("regression/estimate", "weighted coefficients are those of svyglm", words,
  unname(coef(fit)), "survey::svyglm",
  reason = REASON_SOLVE
)
record("regression/covariance", "their covariance is the linearised one of svyglm", words,
  unname(vcov(fit)), "survey::svyglm",
  reason = REASON_SOLVE
)
estimates <- list(mean = svymean, total = svytotal)
for (name in names(estimates)) {
  source <- sprintf("survey::svy%s", name)
  whole <- estimates[[name]](~price, design)
  record(sprintf("%s/all", name), sprintf("the weighted %s and its variance are those of R", name),
    words, c(coef(whole), vcov(whole)), source
  )
  by <- svyby(~price, ~group, design, estimates[[name]], covmat = TRUE)
  record(sprintf("%s/groups", name), sprintf("the weighted %s of each group is that of R", name),
    words, unname(coef(by)), sprintf("%s, survey::svyby", source)
  )
  record(sprintf("%s/covariance", name), "the covariance of the groups is that of R", words,
    unname(vcov(by)), sprintf("%s, survey::svyby", source),
    measure = "scaled"
  )
}
finish()
