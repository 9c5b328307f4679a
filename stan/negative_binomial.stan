/**
 * Negative binomial model of a count with a smoothed spatial effect:
 *
 *   y_i ~ negative binomial, mean exp(eta_i), variance mean + mean^2 / size
 *   eta = shift + X beta + A w[site],  w ~ normal(0, sigma_sq R(phi))
 *
 * A_ii = 1 / sqrt(1 + gamma a_i): all ones is the unrestricted model, and
 * gamma = infinity is A_ii = 0, w* of a flagged record fixed to zero. The
 * spatial effect is a parameter, w = sqrt(sigma_sq) L z with L L' = R(phi)
 * and z standard normal (not centred); there is no nugget. phi is held where
 * phi_lower = phi_upper, and L is then computed once.
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/priors.stanfunctions
  #include functions/counts.stanfunctions
}
data {
  int<lower=1> N; // records
  int<lower=1> P; // columns of the design matrix, intercept included
  int<lower=1> n_sites; // distinct sites
  matrix[N, P] X; // design matrix
  array[N] int<lower=0> y; // counts
  vector[N] shift; // offset on the link scale, 0 where there is none
  matrix[n_sites, 2] coords; // planar coordinates of the sites, all distinct
  array[N] int<lower=1, upper=n_sites> site; // site of each record
  vector<lower=0, upper=1>[N] A; // diagonal of A; 1 unflagged, 0 fully smoothed
  int<lower=1, upper=3> cov_model; // 1 exponential, 2 Matern 3/2, 3 Matern 5/2
  real<lower=0> phi_lower; // bounds of the decay, inverse of their unit
  real<lower=phi_lower> phi_upper; // equal where phi is held
  real<lower=0> sigma_sq_lower; // bounds of sigma_sq
  real<lower=sigma_sq_lower> sigma_sq_upper;
  vector<lower=0>[P] beta_scale; // beta_j ~ normal(0, beta_scale_j)
  int<lower=1, upper=2> variance_prior; // 1 half-normal root, 2 inverse gamma
  array[2] real<lower=0> sigma_par; // scale, unused; or shape, scale
  array[2] real size_par; // log(size) ~ normal(size_par[1], size_par[2])
  real<lower=0> size_lower; // bounds of the size
  real<lower=size_lower> size_upper;
  int<lower=0, upper=1> draw_latent; // 1: give w and a synthetic y
}
transformed data {
  if (phi_lower == 0) {
    reject("phi_lower must be above zero");
  }
  int held = phi_lower == phi_upper;
  matrix[n_sites, n_sites] d = distances(coords, coords);
  matrix[held ? n_sites : 0, held ? n_sites : 0] root_held;
  if (held) {
    root_held = correlation_root(d, phi_lower, cov_model);
  }
}
parameters {
  vector[P] beta;
  real<lower=sigma_sq_lower, upper=sigma_sq_upper> sigma_sq;
  array[held ? 0 : 1] real<lower=phi_lower, upper=phi_upper> phi_free;
  real<lower=size_lower, upper=size_upper> size;
  vector[n_sites] z;
}
transformed parameters {
  vector[n_sites] w;
  if (held) {
    w = sqrt(sigma_sq) * (root_held * z);
  } else {
    w = sqrt(sigma_sq) * (correlation_root(d, phi_free[1], cov_model) * z);
  }
}
model {
  target += normal_lpdf(beta | 0, beta_scale);
  target += variance_lpdf(sigma_sq | variance_prior, sigma_par);
  if (!held) {
    target += uniform_lpdf(phi_free[1] | phi_lower, phi_upper);
  }
  target += lognormal_lpdf(size | size_par[1], size_par[2]);
  target += std_normal_lpdf(z);
  target += neg_binomial_2_log_lpmf(y |
              smoothed_predictor(shift, X, beta, A, w, site), size);
}
generated quantities {
  real phi = held ? phi_lower : phi_free[1];
  array[draw_latent ? N : 0] int y_synthetic;
  if (draw_latent) {
    vector[N] carried = A;
    for (i in 1 : N) {
      if (A[i] == 0) {
        carried[i] = 1; // its own effect, a draw given the others
      }
    }
    vector[N] eta = smoothed_predictor(shift, X, beta, carried, w, site);
    for (i in 1 : N) {
      // The generator takes no mean above exp(15); the package does.
      y_synthetic[i] = neg_binomial_2_log_rng(fmin(eta[i], 15), size);
    }
  }
}
