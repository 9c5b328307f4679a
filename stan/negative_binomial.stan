/**
 * Negative binomial model of a count with a smoothed spatial effect:
 *
 *   y_i ~ negative binomial, mean exp(eta_i), variance mean + mean^2 / size
 *   eta = shift + X beta + A w[site],  w ~ normal(0, sigma_sq R(phi))
 *
 * A, w and the two ways to take phi are those of poisson.stan.
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/priors.stanfunctions
  #include functions/counts.stanfunctions
  #include functions/copies.stanfunctions
}
data {
  #include shared/count_data.stan
  array[N] int<lower=0> y; // counts
  array[2] real size_par; // log(size) ~ normal(size_par[1], size_par[2])
  real<lower=0> size_lower; // bounds of the size
  real<lower=size_lower> size_upper;
}
transformed data {
  #include shared/count_transformed_data.stan
}
parameters {
  #include shared/count_parameters.stan
  real<lower=size_lower, upper=size_upper> size;
}
transformed parameters {
  #include shared/count_transformed_parameters.stan
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
    vector[N] eta = shift + X * beta + carried_effect(w[site], A, 1);
    for (i in 1 : N) {
      // The generator takes no mean above exp(15); the package does.
      y_synthetic[i] = neg_binomial_2_log_rng(fmin(eta[i], 15), size);
    }
  }
}
