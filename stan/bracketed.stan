/**
 * Truncated likelihood of Quick, Holan and Wikle (2018), eq. trun: each
 * record's bracket is given, and its response is a normal cut to the bracket,
 *
 *   y_i | y_i in G_i, w ~ normal(mu_i, tau_sq) cut to (low_i, high_i),
 *   mu = X beta + A w,   w ~ normal(0, sigma_sq R(phi)),
 *
 * with its normalising constant Phi((high_i - mu_i) / tau)
 * - Phi((low_i - mu_i) / tau). The constant holds w, so w can't be integrated
 * out: it is sampled, non-centred, w = sigma L z, L L' = R(phi), one value a
 * distinct site. A is as in restricted.stan under protection paper.
 * phi is held where phi_lower = phi_upper.
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/priors.stanfunctions
  #include functions/decay.stanfunctions
  #include functions/copies.stanfunctions
  #include functions/brackets.stanfunctions
}
data {
  int<lower=1> N; // records
  int<lower=1> P; // columns of the design matrix, intercept included
  int<lower=1> n_sites; // distinct sites
  matrix[N, P] X; // design matrix
  vector[N] y; // response on the modelled scale
  matrix[n_sites, 2] coords; // planar coordinates of the sites
  array[N] int<lower=1, upper=n_sites> site; // the site of each record
  vector<lower=0, upper=1>[N] A; // diagonal of A; 1 unflagged, 0 fully smoothed
  array[N] int<lower=0, upper=1> has_low; // whether the bracket has a lower end
  array[N] int<lower=0, upper=1> has_high; // whether it has an upper end
  vector[N] low; // lower end on the modelled scale; not read without one
  vector[N] high; // upper end, likewise
  // A switch because R alone differs, and fits are compared under each.
  int<lower=1, upper=3> cov_model; // 1 exponential, 2 Matern 3/2, 3 Matern 5/2
  real<lower=0> phi_lower; // bounds of the decay, inverse of their unit;
  real<lower=phi_lower> phi_upper; // equal: the decay is held there
  real<lower=0> phi_rate; // 0: uniform between them; else exponential
  real<lower=0> r_lower; // bounds of tau_sq / sigma_sq
  real<lower=r_lower> r_upper;
  vector<lower=0>[P] beta_scale; // beta_j ~ normal(0, beta_scale_j)
  // A switch because results should hold under both: fit twice.
  int<lower=1, upper=2> variance_prior; // 1 half-normal roots, 2 inverse gamma
  array[2] real<lower=0> sigma_par; // scale, unused; or shape, scale
  array[2] real<lower=0> tau_par; // likewise
  // A switch because copies take room and time, and fits need none.
  int<lower=0, upper=1> draw_latent; // 1: give w and draw a synthetic y
}
transformed data {
  int held = phi_lower == phi_upper;
  matrix[n_sites, n_sites] d = distances(coords, coords);
  matrix[n_sites, n_sites] l_held;
  array[N] int kind; // ends of each bracket: 0 none, 1 upper, 2 lower, 3 both
  array[4] int sizes = {0, 0, 0, 0};
  for (i in 1 : N) {
    kind[i] = has_high[i] + 2 * has_low[i];
    sizes[kind[i] + 1] += 1;
    if ((has_low[i] && y[i] < low[i]) || (has_high[i] && y[i] > high[i])) {
      reject("y[", i, "] is outside its bracket");
    }
    if (kind[i] == 3 && low[i] >= high[i]) {
      reject("low must be below high in bracket ", i);
    }
  }
  array[sizes[2]] int below = which_equal(kind, 1, sizes[2]);
  array[sizes[3]] int above = which_equal(kind, 2, sizes[3]);
  array[sizes[4]] int between = which_equal(kind, 3, sizes[4]);
  l_held = held
           ? cholesky_decompose(spatial_correlation(d, phi_lower, cov_model))
           : rep_matrix(0, n_sites, n_sites);
}
parameters {
  vector[P] beta;
  real<lower=0> sigma_sq;
  real<lower=r_lower * sigma_sq, upper=r_upper * sigma_sq> tau_sq;
  array[held ? 0 : 1] real<lower=phi_lower, upper=phi_upper> phi_free;
  vector[n_sites] z; // w without its scale and correlation
}
transformed parameters {
  real phi = held ? phi_lower : phi_free[1];
}
model {
  real tau = sqrt(tau_sq);
  vector[N] mu;
  if (held) {
    mu = X * beta + A .* (sqrt(sigma_sq) * (l_held * z))[site];
  } else {
    mu = X * beta
         + A
           .* (sqrt(sigma_sq)
               * (cholesky_decompose(spatial_correlation(d, phi, cov_model))
                  * z))[site];
    target += decay_lpdf(phi | phi_lower, phi_upper, phi_rate);
  }
  target += normal_lpdf(beta | 0, beta_scale);
  target += variance_lpdf(sigma_sq | variance_prior, sigma_par);
  target += variance_lpdf(tau_sq | variance_prior, tau_par);
  target += std_normal_lpdf(z);
  target += normal_lpdf(y | mu, tau);
  {
    real mass = bracket_log_mass(mu, tau, low, high, below, above, between);
    // So far out that the difference above is rounding, the density falls.
    target += -mass - 1e3 * fmax(0, -mass - 1e8);
  }
}
generated quantities {
  vector[draw_latent ? n_sites : 0] w;
  vector[draw_latent ? N : 0] y_synthetic;
  if (draw_latent) {
    matrix[n_sites, n_sites] l
      = held ? l_held
        : cholesky_decompose(spatial_correlation(d, phi, cov_model));
    vector[N] effect;
    w = sqrt(sigma_sq) * (l * z);
    effect = carried_effect(w[site], A, 1);
    for (i in 1 : N) {
      y_synthetic[i] = bracket_quantile(uniform_rng(0, 1),
                                        X[i] * beta + effect[i], sqrt(tau_sq),
                                        low[i], high[i], has_low[i],
                                        has_high[i]);
    }
  }
}
