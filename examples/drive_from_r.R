# Make a release from R with reticulate:
# Rscript drive_from_r.R TABLE.csv "FORMULA" X Y DISTANCE OUT
# X and Y are the columns of the coordinates; a record with no neighbour within DISTANCE is protected.
# RETICULATE_PYTHON names the Python that dsstan is installed in.
arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) != 6) stop('usage: drive_from_r.R TABLE.csv "FORMULA" X Y DISTANCE OUT')
library(reticulate)
ds <- import("dsstan", convert = FALSE)

table <- read.csv(arguments[1], check.names = FALSE)
problem <- ds$prepare(table, arguments[2], coords = arguments[3:4])
free <- ds$fit(problem, engine = "direct", progress = FALSE)        # without protection
flags <- ds$flag_isolated(free, distance = as.numeric(arguments[5]))
kept <- ds$fit(problem, weights = flags, protection = "cut", start = free,
               engine = "direct", progress = FALSE)                 # with protection
release <- ds$synthesise(kept, copies = 5, progress = FALSE)        # no seed: a fresh one
for (result in list(flags, ds$assess(release, floor = "5%", progress = FALSE), ds$utility(release)))
  cat(py_str(result), "\n\n")
folder <- release$write(arguments[6], floor = "5%", accept_below_floor = TRUE,
                        reason = "a trial, which stays here")
cat("Read first:", file.path(arguments[6], "confidential", "report.html"), "\n")
