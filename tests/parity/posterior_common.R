# What the two posterior twins share: the data sets, the default priors, what is compared, the
# golden file.
#
# A twin runs from the repository root, `Rscript tests/parity/posterior_<system>.R`. With no
# argument it makes the long run and writes its golden file. With `short <output>` it makes the
# short run of the inputs file and writes draws instead of summaries there.
source(file.path("tests", "parity", "common.R"))

MODELS <- list(unrestricted = 0, infinite = Inf, four = 4)
PROBABILITIES <- c(0.025, 0.5, 0.975)
# Batches of each chain, from whose spread a Monte Carlo error is estimated too.
BATCHES <- 8
# The prior is cut to this range of tau_sq / sigma_sq.
R_BOUNDS <- c(1e-4, 1e4)

#' The simulated incomes, as the repository holds them.
simulated_table <- function() utils::read.csv(file.path("data", "simulated", "simulated.csv"))

#' The one-bedroom San Francisco homes, from the data's own file.
san_francisco_table <- function() {
  name <- "sanfrancisco.home.sales.rda"
  folder <- Sys.getenv("DSSTAN_DATA")
  found <- c(
    if (nzchar(folder)) file.path(folder, c("san_francisco", "."), name),
    Sys.glob(file.path("..", "*", "data", "san_francisco", name))
  )
  found <- found[file.exists(found)]
  if (!length(found)) stop("the San Francisco file is missing; set DSSTAN_DATA to its folder")
  load(found[1])
  subset(
    sanfrancisco.home.sales,
    bedrooms %in% 1 & !is.na(squarefeet) & !is.na(longitude) & !is.na(latitude)
  )
}

#' Rows of a case: listed, or as many as it keeps, evenly spaced. Counted from 1.
rows_of <- function(case, table) {
  if (!is.null(case$rows)) return(case$rows + 1)
  floor((seq_len(case$keep) - 1) * nrow(table) / case$keep) + 1
}

#' The package's default priors, worked out by lm and dist.
default_priors <- function(y, X, sites) {
  spread <- function(v) sqrt(mean((v - mean(v))^2))
  slopes <- X[, -1, drop = FALSE]
  sd_x <- apply(slopes, 2, spread)
  reach <- 1 + sum(abs(colMeans(slopes)) / sd_x)
  level <- abs(mean(y)) + spread(y) * reach
  list(
    beta = unname(100 * c(level, spread(y) / sd_x)),
    root = stats::sigma(stats::lm(y ~ X - 1)),
    phi = c(3, 300) / max(stats::dist(sites))
  )
}

#' Everything that a sampler needs of a case. w has one value a distinct site.
posterior_data <- function(case) {
  table <- if (case$table == "simulated") simulated_table() else san_francisco_table()
  table <- table[rows_of(case, table), ]
  frame <- stats::model.frame(stats::as.formula(case$formula), table)
  y <- unname(stats::model.response(frame))
  X <- unname(stats::model.matrix(stats::as.formula(case$formula), frame))
  sites <- unname(as.matrix(table[case$coords]))
  key <- paste(format(sites[, 1], digits = 17), format(sites[, 2], digits = 17))
  places <- sites[!duplicated(key), , drop = FALSE]
  flagged <- FNN::get.knn(sites, k = 1)$nn.dist[, 1] >= case$distance
  list(
    y = y, X = matrix(X, nrow(table)), site = match(key, unique(key)),
    d = unname(as.matrix(stats::dist(places))), a = as.numeric(flagged),
    outlier = case$outlier + 1, watched = case$watched + 1, phi = case$phi,
    priors = default_priors(y, matrix(X, nrow(table)), places)
  )
}

#' Where each chain starts: spread about the values of the inputs file, phi within its bounds.
#' A long run's chains start far apart, a short one's close to the middle.
starts_of <- function(case, chains, bounds, short) {
  factor <- exp((if (short) 0.1 else 0.5) * seq(-1, 1, length.out = chains))
  lapply(seq_len(chains), function(k) {
    list(
      sigma = case$start$sigma * factor[k], tau = case$start$tau / factor[k],
      phi = min(max(case$phi * factor[chains + 1 - k], 1.1 * bounds[1]), 0.9 * bounds[2])
    )
  })
}

#' What carries into the synthetic value: w, or w* = A w under a finite gamma.
carried_by <- function(A, gamma) if (is.finite(gamma)) A else rep(1, length(A))

#' Monte Carlo standard error of a statistic from its spread over batches of each chain.
batch_error <- function(draws, statistic) {
  batch <- cut(seq_len(nrow(draws)), BATCHES, labels = FALSE)
  of <- apply(draws, 2, function(chain) tapply(chain, batch, statistic))
  stats::sd(of) / sqrt(length(of))
}

#' One statistic with its Monte Carlo standard error and effective sample size.
#'
#' The error is the larger of posterior's and that of batches. Where a small part of a parameter
#' follows a slow one, as the intercept follows phi, the sum of autocorrelations stops too early.
estimate <- function(draws, statistic, error, ess) {
  value <- unname(statistic(draws))
  error <- max(unname(error), batch_error(draws, statistic))
  stopifnot(is.finite(value), is.finite(error), error > 0, is.finite(ess))
  list(value = value, error = error, ess = unname(ess))
}

#' Mean, sd and quantiles of draws, iterations by chains.
summaries <- function(draws) {
  at <- lapply(PROBABILITIES, function(p) {
    estimate(
      draws, function(d) stats::quantile(d, p, names = FALSE),
      posterior::mcse_quantile(draws, p), posterior::ess_quantile(draws, p)
    )
  })
  c(
    list(
      mean = estimate(draws, mean, posterior::mcse_mean(draws), posterior::ess_mean(draws)),
      sd = estimate(
        draws, function(d) stats::sd(d), posterior::mcse_sd(draws), posterior::ess_sd(draws)
      )
    ),
    stats::setNames(at, c("q025", "q500", "q975"))
  )
}

#' Run every model of every case and write what came of it.
#'
#' @param topic name of the script without its ending
#' @param source R functions that compute the posterior
#' @param packages R packages in use
#' @param cases names of the cases
#' @param sampler function (data, gamma, held, lengths, starts, seed) that gives draws, a named
#'   list of matrices, iterations by chains
#' @param versions further versions to record
run_posteriors <- function(topic, source, packages, cases, sampler, versions = list) {
  packages <- union(packages, c("posterior", "FNN"))
  given <- commandArgs(trailingOnly = TRUE)
  short <- length(given) == 2 && given[1] == "short"
  stopifnot(short || !length(given))
  inputs <- begin(topic, packages, "posterior")$posterior
  runs <- list()
  for (name in cases) {
    case <- inputs[[name]]
    data <- posterior_data(case)
    for (model in names(MODELS)) {
      held <- model != "unrestricted"
      lengths <- as.list(case$lengths[[model]][[if (short) "short" else "long"]])
      seed <- case$seed + 10 * match(model, names(MODELS)) + 1000 * short
      begun <- proc.time()[["user.self"]]
      starts <- starts_of(case, inputs$chains, data$priors$phi, short)
      draws <- sampler(data, MODELS[[model]], held, lengths, starts, seed)
      seconds <- proc.time()[["user.self"]] - begun
      outside <- mean(ratio_outside(draws))
      about <- c(
        list(case = case$words, gamma = MODELS[[model]], seed = seed, chains = inputs$chains),
        lengths, list(seconds = round(seconds, 1), outside = outside)
      )
      told <- if (short) list(draws = lapply(draws, t)) else list(
        rhat = lapply(draws, posterior::rhat), quantities = lapply(draws, summaries)
      )
      runs[[paste(name, model, sep = "/")]] <- c(about, list(priors = data$priors), told)
      cat(sprintf("%s: %s %s, %.0f s\n", topic, name, model, seconds))
    }
  }
  output <- if (short) given[2] else file.path(here, "golden", paste0(topic, ".json"))
  write_posteriors(output, topic, source, c(packages_of(packages), versions()), runs)
}

#' Draws whose tau_sq / sigma_sq lies outside the range to which the prior is cut.
ratio_outside <- function(draws) {
  r <- draws$tau_sq / draws$sigma_sq
  r < R_BOUNDS[1] | r > R_BOUNDS[2]
}

packages_of <- function(packages) {
  stats::setNames(
    lapply(packages, function(p) as.character(utils::packageVersion(p))), packages
  )
}

#' Write versions, hashes and runs.
write_posteriors <- function(output, topic, source, packages, runs) {
  files <- c(paste0(topic, ".R"), "posterior_common.R", "common.R", twin$inputs)
  golden <- list(
    topic = topic,
    sha256 = stats::setNames(lapply(file.path(here, files), sha256), files),
    r = as.character(getRversion()),
    blas = basename(extSoftVersion()[["BLAS"]]),
    lapack = La_version(),
    packages = packages,
    source = source,
    runs = runs
  )
  text <- jsonlite::toJSON(golden, auto_unbox = TRUE, digits = NA, na = "string", pretty = 1)
  writeLines(text, output)
}
