# Least squares on the original and on the copies, and the rule that combines them.
source(file.path("tests", "parity", "common.R"))
read <- begin("regression", "mice", c("cases", "regression"))
case <- read$cases$baltimore
own <- read$regression
table <- as.data.frame(case$columns)
formula <- as.formula(case$formula)

REASON_DF <- paste(
  "b comes from differences of nearly equal estimates, which multiplies their rounding by up to",
  "1e4, and the degrees of freedom go with its square"
)

fit <- lm(formula, table)
words <- case$words
record(
  "design", "the design matrix is R's model.matrix", words, unname(model.matrix(fit)),
  "stats::model.matrix, base::scale",
  measure = "scaled"
)
record("ols/estimate", "least squares estimates are those of lm", words, unname(coef(fit)),
  "stats::lm",
  reason = REASON_SOLVE
)
record("ols/variance", "squared standard errors are those of lm", words, unname(diag(vcov(fit))),
  "stats::lm",
  reason = REASON_SOLVE
)
record("ols/interval", "intervals of the original are those of confint", words,
  unname(confint(fit, level = own$level)), "stats::confint",
  reason = REASON_SOLVE
)
record("ols/scale", "the default scale of the variances' prior is lm's residual sd", words,
  c(sigma(fit), sigma(fit)), "stats::sigma",
  reason = REASON_SOLVE
)

fits <- lapply(seq_len(nrow(own$copies)), function(l) {
  table$price <- own$copies[l, ]
  lm(formula, table)
})
for (l in seq_along(fits)) {
  record(
    sprintf("copy/%d", l), "each copy's least squares are those of lm",
    sprintf("copy %d of the Baltimore houses", l),
    unname(c(coef(fits[[l]]), diag(vcov(fits[[l]])))), "stats::lm",
    reason = REASON_SOLVE
  )
}
for (L in c(2, 5)) {
  pooled <- pool.syn(fits[1:L], rule = "reiter2003")
  line <- summary(pooled, conf.int = TRUE, conf.level = own$level)
  words <- sprintf("%d copies of the Baltimore houses", L)
  SOURCE <- "mice::pool.syn"
  record(sprintf("syn/%d/estimate", L), "pooled estimates are those of mice", words,
    line$estimate, SOURCE,
    reason = REASON_SOLVE
  )
  record(sprintf("syn/%d/variance", L), "pooled variances T are those of mice", words,
    pooled$pooled$t, SOURCE,
    reason = REASON_SOLVE
  )
  record(sprintf("syn/%d/df", L), "pooled degrees of freedom are those of mice", words,
    pooled$pooled$df, SOURCE,
    tolerance = 1e-8, reason = REASON_DF
  )
  record(sprintf("syn/%d/interval", L), "pooled intervals are those of mice", words,
    as.matrix(line[, ncol(line) - 1:0]), SOURCE,
    reason = REASON_SOLVE
  )
}

# By hand: the third term does not vary between copies.
for (j in 1:3) {
  pooled <- pool.scalar(own$estimates[, j], own$variances[, j], rule = "reiter2003")
  words <- sprintf("three copies by hand, term %d%s", j, if (j == 3) ", b = 0" else "")
  half <- qt(0.5 + own$level / 2, pooled$df) * sqrt(pooled$t)
  record(
    sprintf("scalar/%d", j), "combine gives the estimate, T, df and interval of mice", words,
    c(pooled$qbar, pooled$t, pooled$df, pooled$qbar - half, pooled$qbar + half),
    "mice::pool.scalar, stats::qt"
  )
}
finish()
