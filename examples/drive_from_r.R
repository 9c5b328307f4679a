# Make a release from R with reticulate:
# Rscript drive_from_r.R TABLE.csv "FORMULA" X Y DISTANCE OUT [FLOOR] [COPIES] [MEASURE]
# X and Y are the columns of the coordinates; a record with no neighbour within DISTANCE is protected.
# FLOOR is 10%, COPIES 20, and MEASURE planar, or projected for longitude and latitude.
# RETICULATE_PYTHON names the Python that dsstan is installed in.
arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) < 6 || length(arguments) > 9)
  stop('usage: drive_from_r.R TABLE.csv "FORMULA" X Y DISTANCE OUT [FLOOR] [COPIES] [MEASURE]')
settings <- c("10%", "20", "planar")
given <- arguments[-(1:6)]
settings[seq_along(given)] <- given
library(reticulate)
ds <- import("dsstan", convert = FALSE)

table <- read.csv(arguments[1], check.names = FALSE)
problem <- ds$prepare(table, arguments[2], coords = arguments[3:4], distance = settings[3])
free <- ds$fit(problem, engine = "direct", progress = FALSE)        # without protection
flags <- ds$flag_isolated(free, distance = as.numeric(arguments[5]))
kept <- ds$fit(problem, weights = flags, protection = "cut", start = free,
               engine = "direct", progress = FALSE)                 # with protection
release <- ds$synthesise(kept, copies = as.numeric(settings[2]), progress = FALSE)  # a fresh seed
found <- ds$assess(release, floor = settings[1], progress = FALSE)
for (result in list(flags, found, ds$utility(release))) cat(py_str(result), "\n\n")
cat("May it be published?", py_to_r(found$verdict), "-", py_to_r(found$why), "\n")
if (py_to_r(found$verdict) == "missed") quit(status = 5)            # nothing is written
folder <- release$write(arguments[6], floor = settings[1])
cat("Read first:", file.path(arguments[6], "confidential", "report.html"), "\n")
