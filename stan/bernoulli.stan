/**
 * Bernoulli model of a yes or no with a smoothed spatial effect:
 *
 *   y_i ~ Bernoulli(1 / (1 + exp(-eta_i)))
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
  array[N] int<lower=0, upper=1> y; // 1 for yes
}
transformed data {
  #include shared/count_transformed_data.stan
}
parameters {
  #include shared/count_parameters.stan
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
  target += std_normal_lpdf(z);
  target += bernoulli_logit_lpmf(y |
              smoothed_predictor(shift, X, beta, A, w, site));
}
generated quantities {
  real phi = held ? phi_lower : phi_free[1];
  array[draw_latent ? N : 0] int y_synthetic;
  if (draw_latent) {
    vector[N] eta = shift + X * beta + carried_effect(w[site], A, 1);
    for (i in 1 : N) {
      y_synthetic[i] = bernoulli_logit_rng(eta[i]);
    }
  }
}
