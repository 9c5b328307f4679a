/**
 * Restricted Gaussian-process model, spatial effect integrated out
 * (eq. restrict of Quick, Holan and Wikle 2018), decay held fixed:
 *
 *   y ~ normal(X beta, V),  V = sigma_sq A R(phi) A + D,
 *   protection 1, paper:      D = tau_sq I
 *   protection 2, preserving: D_ii = tau_sq + sigma_sq (1 - A_ii^2)
 *   protection 3, cut:        as paper without the records with A_ii < 1
 *
 * A_ii = 1 / sqrt(1 + gamma a_i). gamma = infinity is A_ii = 0: the smoothed
 * effect w*_i = A_ii w_i of a flagged record is fixed to zero, its row and
 * column of A R A vanish, and no infinity enters the arithmetic.
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/chebyshev.stanfunctions
  #include functions/surface.stanfunctions
  #include functions/priors.stanfunctions
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
  vector<lower=0, upper=1>[N] A; // diagonal of A; 1 unflagged, 0 fully smoothed
  // A switch because D alone differs, and under 3 the records used.
  int<lower=1, upper=3> protection; // 1 paper, 2 preserving, 3 cut
  real<lower=0> phi; // the decay held, inverse of the coordinates' unit
  real<lower=0> r_lower; // bounds of tau_sq / sigma_sq
  real<lower=r_lower> r_upper;
  vector<lower=0>[P] beta_scale; // beta_j ~ normal(0, beta_scale_j)
  // A switch because results should hold under both: fit twice.
  int<lower=1, upper=2> variance_prior; // 1 half-normal roots, 2 inverse gamma
  array[2] real<lower=0> sigma_par; // scale, unused; or shape, scale
  array[2] real<lower=0> tau_par; // likewise
  int<lower=2> H; // nodes in log r
  int<lower=0> n_check; // held-out points that measure the surface error
  vector<lower=r_lower, upper=r_upper>[n_check] check_r;
  // A switch because copies take room and time, and fits need none.
  int<lower=0, upper=1> draw_latent; // 1: draw w and a synthetic y
}
transformed data {
  if (phi == 0 || r_lower == 0) {
    reject("phi and r_lower must be above zero: their logs are taken");
  }
  array[2] real phi_range = {phi, phi};
  array[2] real r_range = {r_lower, r_upper};
  int n = size(informing_records(A, protection));
  array[n] int kept = informing_records(A, protection);
  vector[n] a_diag = A[kept];
  matrix[n, P] x = X[kept];
  matrix[n, n] d = distances(coords[kept], coords[kept]);
  matrix[P, P] factor = design_factor(x);
  vector[P] b_ls = least_squares(x, factor, y[kept]);
  matrix[n, P + 1] z = rotated_data(x, factor, b_ls, y[kept]);
  matrix[1, H * surface_size(P)] surface
    = surface_coefficients(d, a_diag, protection, cov_model, z, 1, H,
                           phi_range, r_range);
  real error = surface_error_at(surface, H, phi, check_r, phi_range,
                                r_range, d, a_diag, protection, cov_model, z);
  matrix[draw_latent ? N : 0, draw_latent ? n : 0] r_all;
  matrix[draw_latent ? N + 1 : 0, draw_latent ? N : 0] r_system;
  matrix[draw_latent ? n + 1 : 0, draw_latent ? n : 0] m_system;
  if (draw_latent) {
    matrix[N, N] r_full
      = spatial_correlation(distances(coords, coords), phi, cov_model);
    r_all = r_full[ : , kept];
    r_system = eigen_system(r_full);
    m_system = eigen_system(
                 smoothed_correlation(d, phi, a_diag, protection, cov_model));
  }
}
parameters {
  vector[P] beta;
  real<lower=0> sigma_sq;
  real<lower=r_lower * sigma_sq, upper=r_upper * sigma_sq> tau_sq;
}
model {
  real r = tau_sq / sigma_sq;
  target += normal_lpdf(beta | 0, beta_scale);
  target += variance_lpdf(sigma_sq | variance_prior, sigma_par);
  target += variance_lpdf(tau_sq | variance_prior, tau_par);
  target += response_lpdf(surface_at(surface, H, phi, r, phi_range, r_range)
                          | factor * (b_ls - beta), n, sigma_sq, r);
}
generated quantities {
  real surface_error = error;
  vector[draw_latent ? N : 0] w;
  vector[draw_latent ? N : 0] y_synthetic;
  if (draw_latent) {
    vector[N] effect;
    w = latent_rng(r_all, kept, r_system, m_system, a_diag, protection,
                   y[kept] - x * beta, sigma_sq, tau_sq);
    effect = carried_effect(w, A, protection);
    for (i in 1 : N) {
      y_synthetic[i] = normal_rng(X[i] * beta + effect[i], sqrt(tau_sq));
    }
  }
}
