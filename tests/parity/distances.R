# Distances between sites, and to the k-th neighbour, by record and by site.
source(file.path("tests", "parity", "common.R"))
cases <- begin("distances", c("fields", "FNN", "spdep"), "cases")$cases

# Distances to the k-th neighbour by spdep, whose list is not in the order of distance.
kth_spdep <- function(sites, k) {
  list <- suppressWarnings(knn2nb(knearneigh(sites, k = k)))
  vapply(nbdists(list, sites), function(d) sort(d)[k], numeric(1))
}

for (name in names(cases)) {
  case <- cases[[name]]
  sites <- case_data(case)$sites
  unique_sites <- unique(sites)
  site <- match(
    paste(sites[, 1], sites[, 2]),
    paste(unique_sites[, 1], unique_sites[, 2])
  )
  d <- as.matrix(dist(sites))
  if (name == "hand") {
    record("pairs/dist/hand", "Stan's distances are R's", case$words, unname(d), "stats::dist")
    record(
      "pairs/rdist/hand", "Stan's distances are those of fields", case$words, rdist(sites),
      "fields::rdist"
    )
  } else {
    record(
      paste0("sums/", name), "Stan's distances add up to R's, record by record", case$words,
      unname(rowSums(d)), "stats::dist"
    )
  }
  record(
    paste0("largest/", name), "the largest distance between sites is R's", case$words, max(d),
    "stats::dist"
  )
  record(
    paste0("decay/", name), "the prior of the decay runs from 3 to 300 over that distance",
    case$words, c(3, 300) / max(d), "stats::dist"
  )
  record(
    paste0("site/", name), "sites are numbered in order of first appearance", case$words, site,
    "base::unique, base::match"
  )
  shared <- duplicated(sites) | duplicated(sites, fromLast = TRUE)
  record(
    paste0("shared/", name), "as many records share a site as R counts", case$words, sum(shared),
    "base::duplicated"
  )
  for (k in 1:3) {
    words <- sprintf("%s, neighbour %d", case$words, k)
    record(
      sprintf("record/%d/%s", k, name), "the k-th neighbour by record is as far as FNN says",
      words, get.knn(sites, k = k)$nn.dist[, k], "FNN::get.knn"
    )
    record(
      sprintf("site/%d/%s", k, name), "the k-th neighbour by site is as far as spdep says",
      words, kth_spdep(unique_sites, k)[site], "spdep::knearneigh, spdep::nbdists"
    )
  }
}
finish()
