# What every twin shares: inputs, the record of quantities, the golden file.
#
# A twin runs from the repository root, `Rscript tests/parity/<topic>.R [output]`. It reads
# tests/parity/inputs, records quantities and writes tests/parity/golden/<topic>.json, or the
# output file named.

here <- file.path("tests", "parity")
twin <- new.env()

# Tolerances, and why each is what it is. A script that needs another gives its own reason.
EXACT <- 1e-10
OPTIMISED <- 1e-8
DENSITY <- 1e-8
REASON_EXACT <- "the same arithmetic on both sides: only rounding differs"
REASON_SOLVE <- paste(
  "both sides solve a linear system or factor a matrix by other routines, so rounding is",
  "multiplied by its condition number"
)
REASON_DENSITY <- paste(
  "log densities with all constants, absolute: both sides factor the covariance by other",
  "routines"
)

#' Begin a twin.
#'
#' @param topic name of the script without its ending
#' @param packages R packages whose functions it calls
#' @param inputs names of the files in tests/parity/inputs that it reads
begin <- function(topic, packages, inputs = topic) {
  for (package in packages) suppressPackageStartupMessages(library(package, character.only = TRUE))
  twin$topic <- topic
  twin$packages <- packages
  twin$quantities <- list()
  twin$inputs <- file.path("inputs", paste0(inputs, ".json"))
  read <- lapply(file.path(here, twin$inputs), jsonlite::read_json, simplifyVector = TRUE)
  stats::setNames(read, inputs)
}

#' Record a quantity.
#'
#' @param key unique short name, the same on the Python side
#' @param claim a sentence on what is compared
#' @param case the data and settings, in words
#' @param value numbers, a matrix row by row
#' @param source R function and package that computes it
#' @param kind "exact" or "density"
#' @param measure "relative": element by element; "scaled": by the largest element;
#'   "absolute"
record <- function(key, claim, case, value, source, kind = "exact", tolerance = EXACT,
                   measure = "relative", reason = REASON_EXACT) {
  stopifnot(!key %in% names(twin$quantities), length(value) > 0, !anyNA(value))
  stopifnot(kind %in% c("exact", "density"), !grepl("|", c(claim, case, source), fixed = TRUE))
  stopifnot(measure %in% c("relative", "scaled", "absolute"))
  if (is.matrix(value)) value <- t(value)
  twin$quantities[[key]] <- list(
    claim = claim, case = case, source = source, kind = kind, measure = measure,
    tolerance = tolerance, reason = reason, value = I(as.vector(value) + 0)
  )
}

#' Record a log density.
record_density <- function(key, claim, case, value, source, tolerance = DENSITY,
                           reason = REASON_DENSITY) {
  record(key, claim, case, value, source,
    kind = "density", tolerance = tolerance, measure = "absolute", reason = reason
  )
}

sha256 <- function(file) digest::digest(file = file, algo = "sha256")

#' Write the golden file.
finish <- function() {
  files <- c(paste0(twin$topic, ".R"), "common.R", twin$inputs)
  hashes <- lapply(file.path(here, files), sha256)
  versions <- lapply(twin$packages, function(p) as.character(utils::packageVersion(p)))
  golden <- list(
    topic = twin$topic,
    sha256 = stats::setNames(hashes, files),
    r = as.character(getRversion()),
    blas = basename(extSoftVersion()[["BLAS"]]),
    lapack = La_version(),
    packages = stats::setNames(versions, twin$packages),
    quantities = twin$quantities
  )
  given <- commandArgs(trailingOnly = TRUE)
  output <- if (length(given)) given[1] else file.path(here, "golden", paste0(twin$topic, ".json"))
  text <- jsonlite::toJSON(golden, auto_unbox = TRUE, digits = NA, na = "string", pretty = 1)
  writeLines(text, output)
  cat(sprintf("%s: %d quantities\n", twin$topic, length(twin$quantities)))
}

#' Data of a case: table, response and design matrix by R's own formula machinery.
case_data <- function(case) {
  table <- as.data.frame(case$columns)
  frame <- stats::model.frame(stats::as.formula(case$formula), table)
  sites <- as.matrix(table[case$coords])
  dimnames(sites) <- NULL
  list(
    table = table,
    y = as.vector(stats::model.response(frame)),
    X = unname(stats::model.matrix(stats::as.formula(case$formula), frame)),
    sites = sites,
    a = case$a
  )
}

#' Diagonal of A: 1 / sqrt(1 + gamma a), 0 where gamma is infinite and a is not 0.
smoothing <- function(gamma, a) {
  if (is.infinite(gamma)) ifelse(a > 0, 0, 1) else 1 / sqrt(1 + gamma * a)
}

GAMMAS <- list("0" = 0, "4" = 4, "infinite" = Inf)
PROTECTIONS <- c("paper", "preserving", "cut")

#' Records that inform a fit.
informing <- function(A, protection) if (protection == "cut") which(A == 1) else seq_along(A)

#' Covariance of the response among the informing records; fields makes the correlation.
response_covariance <- function(sites, A, protection, p) {
  rows <- informing(A, protection)
  A <- A[rows]
  d <- fields::rdist(sites[rows, , drop = FALSE])
  correlation <- fields::Exponential(d, range = 1 / p$phi)
  noise <- rep(p$tau_sq, length(rows))
  if (protection == "preserving") noise <- noise + p$sigma_sq * (1 - A^2)
  p$sigma_sq * diag(A) %*% correlation %*% diag(A) + diag(noise)
}

#' Points of a case as a list of parameter lists.
points_of <- function(points) {
  lapply(seq_along(points$phi), function(i) {
    list(
      beta = points$beta[i, ], sigma_sq = points$sigma_sq[i], tau_sq = points$tau_sq[i],
      phi = points$phi[i]
    )
  })
}
