# The San Francisco homes. R reads the file itself, and the golden file holds numbers derived
# from all records together, never a value of the data.
#
# The file is looked for in the folder DSSTAN_DATA, else in a folder beside the repository.
source(file.path("tests", "parity", "common.R"))
own <- begin("san_francisco", c("mvtnorm", "FNN", "gstat", "sp", "fields"))$san_francisco

name <- "sanfrancisco.home.sales.rda"
folder <- Sys.getenv("DSSTAN_DATA")
found <- c(
  if (nzchar(folder)) file.path(folder, c("san_francisco", "."), name),
  Sys.glob(file.path("..", "*", "data", "san_francisco", name))
)
found <- found[file.exists(found)]
if (!length(found)) stop("the San Francisco file is missing; set DSSTAN_DATA to its folder")
load(found[1])
homes <- subset(
  sanfrancisco.home.sales,
  bedrooms %in% 1 & !is.na(squarefeet) & !is.na(longitude) & !is.na(latitude)
)

formula <- log(price) ~ scale(log(squarefeet))
fit <- lm(formula, homes)
sites <- unname(cbind(homes$longitude, homes$latitude))
shared <- duplicated(sites) | duplicated(sites, fromLast = TRUE)
nearest <- get.knn(sites, k = 1)$nn.dist[, 1]
data <- list(
  y = unname(model.response(model.frame(fit))), X = unname(model.matrix(fit)), sites = sites,
  a = as.numeric(nearest >= own$distance)
)
words <- "San Francisco, one bedroom"

record("records", "records, sites and records that share one are as R counts them", words,
  c(nrow(homes), nrow(unique(sites)), sum(shared)), "base::load, base::duplicated"
)
record("moments", "the response and the covariate are read as R reads them", words,
  c(mean(data$y), sd(data$y), mean(log(homes$squarefeet)), sd(log(homes$squarefeet))),
  "base::load, base::mean, stats::sd"
)
record("ols", "least squares estimates and variances are those of lm", words,
  unname(c(coef(fit), diag(vcov(fit)))), "stats::lm",
  reason = REASON_SOLVE
)
record("largest", "the largest distance between sites is R's", words, max(dist(sites)),
  "stats::dist"
)
record("flags", "as many records are flagged, and as far from others on average",
  sprintf("%s, M = %g degrees", words, own$distance), c(sum(data$a), mean(nearest)), "FNN::get.knn"
)

prior <- own$half_normal
half_normal <- function(v, scale) log(2) + dnorm(sqrt(v), 0, scale, log = TRUE) - log(2 * sqrt(v))
log_prior <- function(p) {
  sum(dnorm(p$beta, 0, own$beta_scale, log = TRUE)) + half_normal(p$sigma_sq, prior$sigma) +
    half_normal(p$tau_sq, prior$tau) +
    dunif(p$phi, own$phi_bounds[1], own$phi_bounds[2], log = TRUE)
}
response <- function(A, protection, p) {
  rows <- informing(A, protection)
  centre <- as.vector(data$X[rows, ] %*% p$beta)
  dmvnorm(data$y[rows], centre, response_covariance(sites, A, protection, p), log = TRUE)
}
at <- function(points, f) vapply(points, f, numeric(1))

nodes <- points_of(own$at_nodes)
all <- c(nodes, points_of(own$off_nodes))
none <- rep(1, nrow(homes))
record_density(
  "unrestricted", "unrestricted.stan gives the complete log density at its nodes", words,
  at(nodes, function(p) response(none, "paper", p) + log_prior(p)),
  "mvtnorm::dmvnorm, stats::dnorm"
)
for (gamma in names(GAMMAS)) {
  A <- smoothing(GAMMAS[[gamma]], data$a)
  for (protection in PROTECTIONS) {
    key <- paste(protection, gamma, sep = "/")
    case <- sprintf("%s, %s, gamma %s", words, protection, gamma)
    likelihood <- at(all, function(p) response(A, protection, p))
    record_density(
      paste0("response/", key), "node_statistics give the response's log density", case,
      likelihood, "mvtnorm::dmvnorm"
    )
    record_density(
      paste0("cholesky/", key), "reference/cholesky.stan gives the complete log density", case,
      likelihood + at(all, log_prior), "mvtnorm::dmvnorm, stats::dnorm"
    )
  }
}

# The latent surface under the paper's protection, gamma infinite: flagged records say nothing,
# and records at one site are merged, with the nugget over their number as error variance.
p <- all[[length(all)]]
kept <- which(data$a == 0)
key <- paste(sites[kept, 1], sites[kept, 2])
site <- match(key, unique(key))
residual <- as.vector(data$y - data$X %*% p$beta)[kept]
from <- data.frame(unique(sites[kept, ]), value = as.vector(tapply(residual, site, mean)))
names(from)[1:2] <- c("u", "v")
to <- data.frame(u = sites[, 1], v = sites[, 2])
coordinates(from) <- ~ u + v
coordinates(to) <- ~ u + v
w <- krige(value ~ 1, from, to,
  model = vgm(p$sigma_sq, "Exp", 1 / p$phi), beta = 0,
  weights = as.vector(table(site)) / p$tau_sq, debug.level = 0
)
record("latent", "mean and spread of w's mean given y, and its mean variance, are gstat's",
  paste0(words, ", paper, gamma infinite"), c(mean(w$var1.pred), sd(w$var1.pred), mean(w$var1.var)),
  "gstat::krige with weights",
  measure = "scaled", reason = REASON_SOLVE
)
finish()
