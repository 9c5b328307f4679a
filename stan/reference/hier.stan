/**
 * The paper's unrestricted hierarchical model as it is written (eq. hier):
 *
 *   y | beta, w, tau_sq ~ normal(X beta + w, tau_sq I)
 *   w | sigma_sq, phi   ~ normal(0, sigma_sq R(phi))
 *
 * For reading, and for the tests that compare the fast programs with it. w has
 * one value a site, so that several records may share a place.
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/priors.stanfunctions
}
data {
  int<lower=1> N; // records
  int<lower=1> P; // columns of the design matrix, intercept included
  int<lower=1> n_sites; // distinct sites
  matrix[N, P] X; // design matrix
  vector[N] y; // response on the modelled scale
  matrix[n_sites, 2] coords; // planar coordinates of the sites
  // A switch because R alone differs, and fits are compared under each.
  int<lower=1, upper=3> cov_model; // 1 exponential, 2 Matern 3/2, 3 Matern 5/2
  array[N] int<lower=1, upper=n_sites> site; // the site of each record
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
  matrix[n_sites, n_sites] d = distances(coords, coords);
}
parameters {
  vector[P] beta;
  real<lower=0> sigma_sq;
  real<lower=r_lower * sigma_sq, upper=r_upper * sigma_sq> tau_sq;
  real<lower=phi_lower, upper=phi_upper> phi;
  vector[n_sites] w;
}
model {
  target += normal_lpdf(beta | 0, beta_scale);
  target += variance_lpdf(sigma_sq | variance_prior, sigma_par);
  target += variance_lpdf(tau_sq | variance_prior, tau_par);
  target += uniform_lpdf(phi | phi_lower, phi_upper);
  target += multi_normal_cholesky_lpdf(w | rep_vector(0, n_sites),
              cholesky_decompose(sigma_sq
                                 * spatial_correlation(d, phi, cov_model)));
  target += normal_lpdf(y | X * beta + w[site], sqrt(tau_sq));
}
