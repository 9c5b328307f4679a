# Pool one regression over the copies of a release (Reiter 2003), as CSV:
# Rscript read_release.R PUBLIC_FOLDER "FORMULA"
arguments <- commandArgs(trailingOnly = TRUE)
about <- jsonlite::fromJSON(file.path(arguments[1], "metadata.json"))
stopifnot("this script reads CSV; see arrow::read_parquet" = endsWith(about$files, ".csv"))
copies <- lapply(file.path(arguments[1], about$files), read.csv, check.names = FALSE)
fits <- lapply(copies, function(copy) lm(as.formula(arguments[2]), data = copy))
pooled <- summary(mice::pool.syn(mice::as.mira(fits)), conf.int = TRUE)
write.csv(pooled, stdout(), row.names = FALSE)
