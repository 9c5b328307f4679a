# Ripley's K, cross-K, pair correlation and nearest distances of places in a mask of cells.
source(file.path("tests", "parity", "common.R"))
packages <- c("spatstat.geom", "spatstat.explore")
own <- begin("places", packages)$places
radii <- own$reach * seq_len(own$steps) / own$steps
at <- seq(0, own$reach, length.out = own$steps + 1)

rectangle <- owin(c(0, 4), c(0, 3))
second <- own$second == 1
all <- ppp(own$places[, 1], own$places[, 2], rectangle)
marked <- ppp(own$places[, 1], own$places[, 2], rectangle, marks = factor(second))
words <- "70 places on a rectangle of 8 by 6 cells"

record(
  "K/rectangle", "Ripley's K with the translation correction is that of Kest", words,
  Kest(all, r = at, correction = "translate")$trans[-1], "spatstat.explore::Kest"
)
record(
  "cross/rectangle", "cross-K of two groups is that of Kcross", words,
  Kcross(marked, "FALSE", "TRUE", r = at, correction = "translate")$trans[-1],
  "spatstat.explore::Kcross"
)

# pcf interpolates a density on a lattice; its own kernel and weights give the sum exactly.
pairs <- closepairs(all, own$reach + 1)
weight <- edge.Trans(dx = pairs$dx, dy = pairs$dy, W = rectangle, paired = TRUE)
half <- 0.15 / sqrt(npoints(all) / area(rectangle))
kernel <- function(r) dkernel((r - pairs$d), "epanechnikov", sd = half / sqrt(5))
scale <- area(rectangle) / (npoints(all) * (npoints(all) - 1))
g <- vapply(radii, function(r) scale * sum(weight * kernel(r)) / (2 * pi * r), numeric(1))
near <- pcf(all, r = seq(0, own$reach, length.out = 16 * own$steps + 1), correction = "translate")
stopifnot(max(abs(near$trans[1 + 16 * seq_len(own$steps)] / g - 1)) < 0.02)
record("pcf/rectangle", "the pair correlation is the kernel sum behind pcf", words, g,
  "spatstat.geom::dkernel, spatstat.geom::closepairs, spatstat.explore::edge.Trans"
)

corner <- owin(poly = list(x = c(0, 4, 4, 2, 2, 0), y = c(0, 0, 1.5, 1.5, 3, 3)))
inside <- all[inside.owin(all$x, all$y, corner)]
inside <- ppp(inside$x, inside$y, corner)
pairs <- closepairs(inside, own$reach)
weight <- edge.Trans(dx = pairs$dx, dy = pairs$dy, W = corner, exact = TRUE, paired = TRUE)
scale <- area(corner) / (npoints(inside) * (npoints(inside) - 1))
words <- "those of them on an L of 36 cells"
POLYGONS <- "spatstat intersects polygons on an integer lattice of about 1e-9 of their size"
record("K/corner", "on an L the edge weights are those of intersected polygons", words,
  vapply(radii, function(r) scale * sum(weight[pairs$d <= r]), numeric(1)),
  "spatstat.explore::edge.Trans, exact",
  tolerance = 1e-6, reason = POLYGONS
)
record(
  "nearest/rectangle", "the distance to the nearest other place is nndist's",
  "70 places on a rectangle of 8 by 6 cells", nndist(all), "spatstat.geom::nndist"
)
record(
  "nearest/gap", "the largest gap of two distribution functions is that of ks.test",
  "nearest distances of the two groups",
  suppressWarnings(unname(ks.test(nndist(all[!second]), nndist(all[second]))$statistic)),
  "stats::ks.test"
)
finish()
