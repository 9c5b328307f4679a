// Distances among the sites, and the factor of R(phi) where phi is held.
if (phi_lower == 0) {
  reject("phi_lower must be above zero");
}
int held = phi_lower == phi_upper;
matrix[n_sites, n_sites] d = distances(coords, coords);
matrix[held ? n_sites : 0, held ? n_sites : 0] root_held;
if (held) {
  root_held = correlation_root(d, phi_lower, cov_model);
}
