/**
 * The posterior of unrestricted.stan (G > 1) or restricted.stan (G = 1) from
 * a surface computed outside: Chebyshev coefficients of log|C| - n log(1 + r)
 * and (1 + r) Z'C^-1 Z, so that the data are no larger for more records.
 *
 * What is sampled is z, in which the posterior is nearly standard normal:
 * phi, r = tau_sq / sigma_sq, sigma_sq and beta are functions of z that come
 * with the data. Any functions with z in one to one give the same posterior,
 * for the model is stated in beta, sigma_sq, tau_sq and phi, and the
 * derivatives of the functions are counted.
 * Where phi_lower = phi_upper the decay is held and has no coordinate. Under
 * adaptive smoothing C has a kink in r: the surface then has two panels.
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/chebyshev.stanfunctions
  #include functions/surface.stanfunctions
  #include functions/priors.stanfunctions
  #include functions/decay.stanfunctions
  #include functions/whitening.stanfunctions
}
data {
  int<lower=1> n; // records that inform the fit
  int<lower=1> P; // columns of the design matrix, intercept included
  int<lower=1> G; // nodes in log phi, 1 where it is held
  int<lower=2> H; // nodes in log r, up to r_split
  int<lower=1> H_above; // beyond it, 1 where nothing is
  matrix[G, (H + H_above) * surface_size(P)] surface; // Chebyshev coefficients
  matrix[P, P] factor; // T in X = Q T
  vector[P] b_ls; // least squares coefficients
  real<lower=0> phi_lower; // bounds of the decay
  real<lower=phi_lower> phi_upper;
  real<lower=0> phi_rate; // 0: uniform between them; else exponential
  real<lower=0> r_lower; // bounds of tau_sq / sigma_sq
  real<lower=r_lower> r_upper;
  real<lower=r_lower, upper=r_upper> r_split; // where C may have a kink in r
  vector<lower=0>[P] beta_scale; // beta_j ~ normal(0, beta_scale_j)
  // A switch because results should hold under both: fit twice.
  int<lower=1, upper=2> variance_prior; // 1 half-normal roots, 2 inverse gamma
  array[2] real<lower=0> sigma_par; // scale, unused; or shape, scale
  array[2] real<lower=0> tau_par; // likewise
  int<lower=4> M; // nodes of the functions of z
  int<lower=1> M_phi; // M, or 1 where phi is held
  vector[M] z_nodes; // equally spaced
  vector[M_phi] log_phi; // spline coefficients of log phi
  matrix[M_phi, M] log_r; // of log r
  matrix[M_phi, M] log_sigma_sq; // of the mode of log sigma_sq
  matrix[M_phi, M] log_scale; // of the log of its scale
}
transformed data {
  if (phi_lower == 0 || r_lower == 0) {
    reject("phi_lower and r_lower must be above zero: their logs are taken");
  }
  array[2] real phi_range = {phi_lower, phi_upper};
  array[3] real r_ends = {r_lower, r_split, r_upper};
  int size = H * surface_size(P);
  matrix[G, size] below = surface[ : , 1 : size];
  matrix[G, H_above * surface_size(P)] above
    = surface[ : , (size + 1) : cols(surface)];
  int held = phi_lower == phi_upper;
  if (M_phi != (held ? 1 : M)) {
    reject("M_phi must be M, or 1 where phi is held");
  }
}
parameters {
  vector[P + (held ? 2 : 3)] whitened; // z, of beta, sigma_sq, r and phi
}
model {
  vector[4] spatial = spatial_parameters(tail(whitened, num_elements(whitened)
                                                           - P),
                                         z_nodes, log_phi, log_r,
                                         log_sigma_sq, log_scale);
  real phi = held ? phi_lower : spatial[1];
  real r = spatial[2];
  real sigma_sq = spatial[3];
  row_vector[surface_size(P)] s
    = panels_at(below, above, H, H_above, phi, r, phi_range, r_ends);
  vector[P + 1] given = coefficients_given(head(whitened, P), s, r, sigma_sq,
                                           factor, b_ls, beta_scale);
  vector[P] beta = head(given, P);
  target += normal_lpdf(beta | 0, beta_scale);
  target += variance_lpdf(sigma_sq | variance_prior, sigma_par);
  target += variance_lpdf(r * sigma_sq | variance_prior, tau_par);
  if (!held) {
    target += decay_lpdf(phi | phi_lower, phi_upper, phi_rate);
  }
  target += response_lpdf(s | factor * (b_ls - beta), n, sigma_sq, r);
  target += spatial[4] + given[P + 1]; // derivatives by z
}
generated quantities {
  vector[P] beta;
  real sigma_sq;
  real tau_sq;
  real phi;
  {
    vector[4] spatial = spatial_parameters(tail(whitened, num_elements(whitened)
                                                           - P),
                                           z_nodes, log_phi, log_r,
                                           log_sigma_sq, log_scale);
    phi = held ? phi_lower : spatial[1];
    sigma_sq = spatial[3];
    tau_sq = spatial[2] * sigma_sq;
    beta = head(coefficients_given(head(whitened, P),
                                   panels_at(below, above, H, H_above, phi,
                                             spatial[2], phi_range, r_ends),
                                   spatial[2], sigma_sq, factor, b_ls,
                                   beta_scale),
                P);
  }
}
