/**
 * The marginal models with one Cholesky factor a gradient and no surface, the
 * way they are usually written. An oracle for the surface programs and the
 * yardstick of their speed.
 *
 *   y ~ normal(X beta, sigma_sq A R(phi) A + D), D as in restricted.stan
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/priors.stanfunctions
}
data {
  int<lower=1> N; // records
  int<lower=1> P; // columns of the design matrix, intercept included
  matrix[N, P] X; // design matrix
  vector[N] y; // response on the modelled scale
  matrix[N, 2] coords; // planar coordinates
  // A switch because R alone differs, and fits are compared under each.
  int<lower=1, upper=3> cov_model; // 1 exponential, 2 Matern 3/2, 3 Matern 5/2
  vector<lower=0, upper=1>[N] A; // diagonal of A
  // A switch because D alone differs, and under 3 the records used.
  int<lower=1, upper=3> protection; // 1 paper, 2 preserving, 3 cut
  real<lower=0> phi_lower; // bounds of the decay
  real<lower=phi_lower> phi_upper;
  real<lower=0> r_lower; // bounds of tau_sq / sigma_sq
  real<lower=r_lower> r_upper;
  vector<lower=0>[P] beta_scale; // beta_j ~ normal(0, beta_scale_j)
  // A switch because results should hold under both: fit twice.
  int<lower=1, upper=2> variance_prior; // 1 half-normal roots, 2 inverse gamma
  array[2] real<lower=0> sigma_par; // scale, unused; or shape, scale
  array[2] real<lower=0> tau_par; // likewise
}
transformed data {
  int n = size(informing_records(A, protection));
  array[n] int kept = informing_records(A, protection);
  vector[n] a_diag = A[kept];
  matrix[n, n] d = distances(coords[kept], coords[kept]);
}
parameters {
  vector[P] beta;
  real<lower=0> sigma_sq;
  real<lower=r_lower * sigma_sq, upper=r_upper * sigma_sq> tau_sq;
  real<lower=phi_lower, upper=phi_upper> phi;
}
model {
  matrix[n, n] m = smoothed_correlation(d, phi, a_diag, protection,
                                        cov_model);
  target += normal_lpdf(beta | 0, beta_scale);
  target += variance_lpdf(sigma_sq | variance_prior, sigma_par);
  target += variance_lpdf(tau_sq | variance_prior, tau_par);
  target += uniform_lpdf(phi | phi_lower, phi_upper);
  target += multi_normal_cholesky_lpdf(y[kept] | X[kept] * beta,
              cholesky_decompose(add_diag(sigma_sq * m, tau_sq)));
}
