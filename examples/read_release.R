# Pool one regression over the copies of a release (Reiter 2003), as CSV:
# Rscript read_release.R FOLDER "FORMULA", with a release or its public folder
arguments <- commandArgs(trailingOnly = TRUE)
about <- file.path(arguments[1], c("metadata.json", "public/metadata.json"))
about <- about[file.exists(about)][1]
if (is.na(about)) stop("no release: ", arguments[1], " holds neither metadata.json nor public/metadata.json")
files <- jsonlite::fromJSON(about)$files
if (!all(endsWith(files, ".csv"))) stop("this script reads CSV; for Parquet see arrow::read_parquet")
copies <- lapply(file.path(dirname(about), files), read.csv, check.names = FALSE)
fits <- lapply(copies, function(copy) lm(as.formula(arguments[2]), data = copy))
pooled <- summary(mice::pool.syn(mice::as.mira(fits)), conf.int = TRUE)
write.csv(pooled, stdout(), row.names = FALSE)
