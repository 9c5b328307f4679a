/**
 * Unrestricted Gaussian-process model, spatial effect integrated out
 * (eq. hier of Quick, Holan and Wikle 2018):
 *
 *   y ~ normal(X beta, V),  V = sigma_sq R(phi) + tau_sq I,
 *   R(phi)_ij = exp(-phi d_ij), or Matern's of the same decay
 *
 * log|C| and Z'C^-1 Z, C = V / sigma_sq, are smooth in (log phi, log r),
 * r = tau_sq / sigma_sq. They are computed once at G x H Chebyshev nodes and
 * interpolated, so a gradient costs the same for any number of records.
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/chebyshev.stanfunctions
  #include functions/surface.stanfunctions
  #include functions/priors.stanfunctions
  #include functions/decay.stanfunctions
  #include functions/copies.stanfunctions
}
data {
  int<lower=1> N; // records
  int<lower=1> P; // columns of the design matrix, intercept included
  matrix[N, P] X; // design matrix
  vector[N] y; // response on the modelled scale
  matrix[N, 2] coords; // planar coordinates
  // A switch because R alone differs, and fits are compared under each.
  int<lower=1, upper=3> cov_model; // 1 exponential, 2 Matern 3/2, 3 Matern 5/2
  real<lower=0> phi_lower; // bounds of the decay, inverse of their unit
  real<lower=phi_lower> phi_upper;
  real<lower=0> phi_rate; // 0: uniform between them; else exponential
  real<lower=0> r_lower; // bounds of tau_sq / sigma_sq
  real<lower=r_lower> r_upper;
  vector<lower=0>[P] beta_scale; // beta_j ~ normal(0, beta_scale_j)
  // A switch because results should hold under both: fit twice.
  int<lower=1, upper=2> variance_prior; // 1 half-normal roots, 2 inverse gamma
  array[2] real<lower=0> sigma_par; // scale, unused; or shape, scale
  array[2] real<lower=0> tau_par; // likewise
  int<lower=2> G; // nodes in log phi
  int<lower=2> H; // nodes in log r
  int<lower=0> n_check; // held-out points that measure the surface error
  vector<lower=phi_lower, upper=phi_upper>[n_check] check_phi;
  vector<lower=r_lower, upper=r_upper>[n_check] check_r;
  // A switch because copies take room and time, and fits need none.
  int<lower=0, upper=1> draw_latent; // 1: draw w and a synthetic y
}
transformed data {
  if (phi_lower == 0 || r_lower == 0) {
    reject("phi_lower and r_lower must be above zero: their logs are taken");
  }
  array[2] real phi_range = {phi_lower, phi_upper};
  array[2] real r_range = {r_lower, r_upper};
  array[N] int kept = linspaced_int_array(N, 1, N);
  vector[N] a_diag = rep_vector(1, N);
  matrix[N, N] d = distances(coords, coords);
  matrix[P, P] factor = design_factor(X);
  vector[P] b_ls = least_squares(X, factor, y);
  matrix[N, P + 1] z = rotated_data(X, factor, b_ls, y);
  matrix[G, H * surface_size(P)] surface
    = surface_coefficients(d, a_diag, 1, cov_model, z, G, H, phi_range,
                           r_range);
  real error = 0;
  for (c in 1 : n_check) {
    error = fmax(error,
                 surface_error_at(surface, H, check_phi[c], check_r[c : c],
                                  phi_range, r_range, d, a_diag, 1,
                                  cov_model, z));
  }
}
parameters {
  vector[P] beta;
  real<lower=0> sigma_sq;
  real<lower=r_lower * sigma_sq, upper=r_upper * sigma_sq> tau_sq;
  real<lower=phi_lower, upper=phi_upper> phi;
}
model {
  real r = tau_sq / sigma_sq;
  target += normal_lpdf(beta | 0, beta_scale);
  target += variance_lpdf(sigma_sq | variance_prior, sigma_par);
  target += variance_lpdf(tau_sq | variance_prior, tau_par);
  target += decay_lpdf(phi | phi_lower, phi_upper, phi_rate);
  target += response_lpdf(surface_at(surface, H, phi, r, phi_range, r_range)
                          | factor * (b_ls - beta), N, sigma_sq, r);
}
generated quantities {
  real surface_error = error;
  vector[draw_latent ? N : 0] w;
  vector[draw_latent ? N : 0] y_synthetic;
  if (draw_latent) {
    matrix[N, N] m = spatial_correlation(d, phi, cov_model);
    matrix[N + 1, N] system = eigen_system(m);
    w = latent_rng(m, kept, system, system, a_diag, 1, y - X * beta,
                   sigma_sq, tau_sq);
    for (i in 1 : N) {
      y_synthetic[i] = normal_rng(X[i] * beta + w[i], sqrt(tau_sq));
    }
  }
}
