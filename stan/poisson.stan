/**
 * Poisson model of a count with a smoothed spatial effect (section 6 of Quick,
 * Holan and Wikle 2018):
 *
 *   y_i ~ Poisson(exp(eta_i))
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
  #include functions/copies.stanfunctions
}
data {
  #include shared/count_data.stan
  array[N] int<lower=0> y; // counts
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
  target += poisson_log_lpmf(y |
                             smoothed_predictor(shift, X, beta, A, w, site));
}
generated quantities {
  real phi = held ? phi_lower : phi_free[1];
  array[draw_latent ? N : 0] int y_synthetic;
  if (draw_latent) {
    vector[N] eta = shift + X * beta + carried_effect(w[site], A, 1);
    for (i in 1 : N) {
      // The generator takes no mean above exp(20); the package does.
      y_synthetic[i] = poisson_log_rng(fmin(eta[i], 20));
    }
  }
}
