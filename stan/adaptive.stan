/**
 * Adaptive smoothing: weights and global risk parameter inside the sampler
 * (section 6 of Quick, Holan and Wikle 2018), spatial effect integrated out:
 *
 *   y ~ normal(X beta, V),  V = sigma_sq A R(phi) A + D,  A_ii = A_i(phi, r)
 *   protection 1, paper:      D = tau_sq I
 *   protection 2, preserving: D_ii = tau_sq + sigma_sq (1 - A_ii^2)
 *
 *   A_ii = 1 / sqrt(1 + gamma a_i),  gamma = max(0, kink / r - 1),
 *   a_i = 1 - correlation(nearest_i);  1 - exp(-phi nearest_i) where it is
 *   exponential
 *
 * kink = 1 is gamma = sigma_sq / tau_sq - 1, and kink = (1 - alpha) / alpha the
 * gamma of the paper's eq. alpha. A depends on (phi, r = tau_sq / sigma_sq)
 * alone, so the statistics of the likelihood are those of a surface. gamma has
 * a kink at r = kink: one interpolant on each side.
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/chebyshev.stanfunctions
  #include functions/surface.stanfunctions
  #include functions/adaptive.stanfunctions
  #include functions/priors.stanfunctions
  #include functions/decay.stanfunctions
}
data {
  int<lower=1> N; // records
  int<lower=1> P; // columns of the design matrix, intercept included
  matrix[N, P] X; // design matrix
  vector[N] y; // response on the modelled scale
  matrix[N, 2] coords; // planar coordinates
  // A switch because R alone differs, and fits are compared under each.
  int<lower=1, upper=3> cov_model; // 1 exponential, 2 Matern 3/2, 3 Matern 5/2
  vector<lower=0>[N] nearest; // distance of each record to its neighbour
  // A switch because D alone differs.
  int<lower=1, upper=2> protection; // 1 paper, 2 preserving
  real<lower=0> kink; // gamma = max(0, kink / r - 1)
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
  int<lower=1> H; // nodes in log r below the kink; 1 where nothing is below
  int<lower=1> H_above; // nodes in log r above it; 1 where nothing is above
  int<lower=0> n_check; // held-out points that measure the surface error
  vector<lower=phi_lower, upper=phi_upper>[n_check] check_phi;
  vector<lower=r_lower, upper=r_upper>[n_check] check_r;
}
transformed data {
  if (phi_lower == 0 || r_lower == 0) {
    reject("phi_lower and r_lower must be above zero: their logs are taken");
  }
  real split = fmin(fmax(kink, r_lower), r_upper);
  array[2] real phi_range = {phi_lower, phi_upper};
  array[3] real r_ends = {r_lower, split, r_upper};
  matrix[N, N] d = distances(coords, coords);
  matrix[P, P] factor = design_factor(X);
  vector[P] b_ls = least_squares(X, factor, y);
  matrix[N, P + 1] z = rotated_data(X, factor, b_ls, y);
  matrix[G, H * surface_size(P)] below
    = adaptive_coefficients(d, nearest, kink, protection, cov_model, z, G,
                            H, phi_range, r_ends[1 : 2]);
  matrix[G, H_above * surface_size(P)] above
    = added_above(below,
                  adaptive_coefficients(d, nearest, kink, protection,
                                        cov_model, z, G, H_above, phi_range,
                                        r_ends[2 : 3]),
                  H, H_above);
  real error = 0;
  for (c in 1 : n_check) {
    matrix[1, surface_size(P)] exact
      = adaptive_statistics(d, nearest, check_phi[c], check_r[c : c], kink,
                            protection, cov_model, z);
    error = fmax(error,
                 interpolation_error(
                   panels_at(below, above, H, H_above, check_phi[c],
                             check_r[c], phi_range, r_ends),
                   exact[1], N, check_r[c]));
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
  target += response_lpdf(panels_at(below, above, H, H_above, phi, r,
                                    phi_range, r_ends)
                          | factor * (b_ls - beta), N, sigma_sq, r);
}
generated quantities {
  real surface_error = error;
}
