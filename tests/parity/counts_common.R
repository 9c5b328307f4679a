# What the twins of counts share: the records, one value of w a distinct site.

#' Records, sites and priors of the inputs.
count_data <- function(inputs) {
  columns <- as.data.frame(inputs$columns, check.names = FALSE)
  key <- paste(format(columns$s1, digits = 17), format(columns$s2, digits = 17))
  places <- as.matrix(columns[!duplicated(key), c("s1", "s2")])
  list(
    columns = columns, X = cbind(1, columns$x), site = match(key, unique(key)),
    d = unname(as.matrix(stats::dist(places)))
  )
}
