// The spatial effect of each site, w = sqrt(sigma_sq) L z.
vector[n_sites] w;
if (held) {
  w = sqrt(sigma_sq) * (root_held * z);
} else {
  w = sqrt(sigma_sq) * (correlation_root(d, phi_free[1], cov_model) * z);
}
