/**
 * The posterior of unrestricted.stan (G > 1) or restricted.stan (G = 1) from
 * a surface computed outside: Chebyshev coefficients of log|C| - n log(1 + r)
 * and (1 + r) Z'C^-1 Z, so that the data are no larger for more records.
 * Where phi_lower = phi_upper the decay is held and phi is no parameter.
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/chebyshev.stanfunctions
  #include functions/surface.stanfunctions
  #include functions/priors.stanfunctions
}
data {
  int<lower=1> n; // records that inform the fit
  int<lower=1> P; // columns of the design matrix, intercept included
  int<lower=1> G; // nodes in log phi, 1 where it is held
  int<lower=2> H; // nodes in log r
  matrix[G, H * surface_size(P)] surface; // Chebyshev coefficients
  matrix[P, P] factor; // T in X = Q T
  vector[P] b_ls; // least squares coefficients
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
  if (phi_lower == 0 || r_lower == 0) {
    reject("phi_lower and r_lower must be above zero: their logs are taken");
  }
  array[2] real phi_range = {phi_lower, phi_upper};
  array[2] real r_range = {r_lower, r_upper};
  int held = phi_lower == phi_upper;
}
parameters {
  vector[P] beta;
  real<lower=0> sigma_sq;
  real<lower=r_lower * sigma_sq, upper=r_upper * sigma_sq> tau_sq;
  array[held ? 0 : 1] real<lower=phi_lower, upper=phi_upper> phi_free;
}
transformed parameters {
  real phi = held ? phi_lower : phi_free[1];
}
model {
  real r = tau_sq / sigma_sq;
  target += normal_lpdf(beta | 0, beta_scale);
  target += variance_lpdf(sigma_sq | variance_prior, sigma_par);
  target += variance_lpdf(tau_sq | variance_prior, tau_par);
  if (!held) {
    target += uniform_lpdf(phi | phi_lower, phi_upper);
  }
  target += response_lpdf(surface_at(surface, H, phi, r, phi_range, r_range)
                          | factor * (b_ls - beta), n, sigma_sq, r);
}
