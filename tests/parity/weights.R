# Isolation distance, flags, P(flag), and the degree of smoothing alpha.
source(file.path("tests", "parity", "common.R"))
read <- begin("weights", c("fields", "FNN", "gstat", "sp"), c("cases", "weights"))
case <- read$cases$hand
own <- read$weights
sites <- case_data(case)$sites
phi <- as.vector(t(own$phi_draws))
phi_hat <- median(phi)
nearest <- get.knn(sites, k = 1)$nn.dist[, 1]

for (c in own$correlations) {
  words <- sprintf("c = %g", c)
  record(
    sprintf("M/formula/%g", c), "M is -log(c) / phi at the posterior median", words,
    -log(c) / phi_hat, "stats::median"
  )
  falls <- function(d) Exponential(d, range = 1 / phi_hat) - c
  root <- uniroot(falls, c(0, 10), tol = 1e-15)$root
  record(
    sprintf("M/solved/%g", c), "at M the correlation of fields has fallen to c", words, root,
    "stats::uniroot, fields::Exponential",
    tolerance = OPTIMISED, reason = "R finds the distance by bracketing, to its tolerance"
  )
  record(
    sprintf("flags/%g", c), "records whose nearest neighbour is at M or beyond are flagged",
    words, nearest >= -log(c) / phi_hat, "FNN::get.knn"
  )
  record(
    sprintf("probability/%g", c), "P(flag) is the share of draws of phi that flag", words,
    vapply(nearest, function(d) mean(d >= -log(c) / phi), numeric(1)), "FNN::get.knn"
  )
}

# Distances and thresholds are powers of two here, so that they tie exactly.
M <- own$distance
record(
  "flags/tie", "a distance equal to M flags", "M = 0.25, met exactly", nearest >= M,
  "FNN::get.knn"
)
record(
  "probability/tie", "P(flag) counts the draws whose threshold equals the distance",
  "M = 0.25, met exactly",
  vapply(nearest, function(d) mean(d >= M * phi_hat / phi), numeric(1)), "FNN::get.knn"
)
stopifnot(any(nearest == M), any(outer(nearest, M * phi_hat / phi, "==")))

# The weight that simple kriging gives a lone datum with measurement error.
kriging_weight <- function(sill, error) {
  lone <- data.frame(u = 0, v = 0, z = 1)
  coordinates(lone) <- ~ u + v
  model <- vgm(sill, "Exp", 1, add.to = vgm(error, "Err", 0))
  krige(z ~ 1, lone, lone, model = model, beta = 0, debug.level = 0)$var1.pred
}
alpha <- own$alpha
gamma <- as.numeric(alpha$gamma)
for (i in seq_along(alpha$sigma_sq)) {
  sigma_sq <- alpha$sigma_sq[i]
  tau_sq <- alpha$tau_sq[i]
  words <- sprintf("sigma_sq %g, tau_sq %g", sigma_sq, tau_sq)
  record(
    sprintf("alpha/%d", i), "alpha is the kriging weight of a lone record", words,
    vapply(gamma, function(g) {
      if (is.infinite(g)) 0 else kriging_weight(sigma_sq / (1 + g), tau_sq)
    }, numeric(1)),
    "gstat::krige with measurement error"
  )
  wanted <- alpha$alpha
  record(
    sprintf("gamma/%d", i), "gamma(alpha) follows its formula", words,
    ifelse(wanted == 0, Inf, (sigma_sq / tau_sq) * (1 - wanted) / wanted - 1), "formula"
  )
}
finish()
