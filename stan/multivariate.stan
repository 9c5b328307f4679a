/**
 * Several groups of records with one multivariate spatial process (section 6
 * of Quick, Holan and Wikle 2018), spatial effects and coefficients integrated
 * out. Record i belongs to group k = k(i):
 *
 *   y_i = x_i' beta_k + A_ii w_k(s_i) + e_i,   e_i ~ normal(0, D_ii)
 *   Cov(w_k(s), w_l(s')) = T_kl R(phi)(s, s')
 *   protection 1, paper:      D_ii = tau_sq_k
 *   protection 2, preserving: D_ii = tau_sq_k + T_kk (1 - A_ii^2)
 *   protection 3, cut:        as paper without the records with A_ii < 1
 *
 * beta_k = mu + delta_k, mu_j ~ normal(0, beta_scale_j) and delta_kj ~
 * normal(0, group_scale_j). The two variances of a group are sampled in polar
 * coordinates: sigma = sqrt(T_kk) = root sin(angle), tau = root cos(angle).
 */
functions {
  #include functions/covariance.stanfunctions
  #include functions/priors.stanfunctions
  #include functions/decay.stanfunctions
  #include functions/groups.stanfunctions
}
data {
  int<lower=1> N; // records
  int<lower=1> P; // columns of the design matrix, intercept included
  int<lower=1> n_groups; // groups
  matrix[N, P] X; // design matrix
  vector[N] y; // response on the modelled scale
  matrix[N, 2] coords; // planar coordinates
  array[N] int<lower=1, upper=n_groups> group; // group of each record
  vector<lower=0, upper=1>[N] A; // diagonal of A; 1 unflagged, 0 fully smoothed
  // A switch because D alone differs, and under 3 the records used.
  int<lower=1, upper=3> protection; // 1 paper, 2 preserving, 3 cut
  // A switch because R alone differs, and fits are compared under each.
  int<lower=1, upper=3> cov_model; // 1 exponential, 2 Matern 3/2, 3 Matern 5/2
  real<lower=0> phi_lower; // bounds of the decay, inverse of their unit
  real<lower=phi_lower> phi_upper; // equal to phi_lower: the decay is held
  real<lower=0> phi_rate; // 0: uniform between them; else exponential
  real<lower=0> r_lower; // bounds of tau_sq_k / T_kk
  real<lower=r_lower> r_upper;
  vector<lower=0>[P] beta_scale; // mu_j ~ normal(0, beta_scale_j)
  vector<lower=0>[P] group_scale; // delta_kj ~ normal(0, group_scale_j)
  // A switch because results should hold under both: fit twice.
  int<lower=1, upper=2> variance_prior; // 1 half-normal roots, 2 inverse gamma
  array[2] real<lower=0> sigma_par; // of T_kk: scale, unused; or shape, scale
  array[2] real<lower=0> tau_par; // of tau_sq_k: likewise
  real<lower=0> lkj_eta; // correlation of T ~ lkj_corr(lkj_eta)
}
transformed data {
  if (r_lower == 0 || lkj_eta == 0) {
    reject("r_lower and lkj_eta must be above zero");
  }
  int held = phi_lower == phi_upper;
  int Q = n_groups * P;
  int n = size(informing_records(A, protection));
  array[n] int kept = informing_records(A, protection);
  array[n] int group_kept = group[kept];
  vector[n] a_diag = A[kept];
  matrix[n, n] d = distances(coords[kept], coords[kept]);
  matrix[held ? n : 0, held ? n : 0] r_held;
  matrix[n, Q + 1] z = group_design(X[kept], y[kept], group_kept, n_groups);
  real z_size = sum(square(z)); // Z'Z is at most this
  matrix[Q, Q] prior = group_prior(beta_scale, group_scale, n_groups);
  matrix[Q, Q] precision = inverse_spd(prior);
  real log_det_b = 2 * sum(log(diagonal(cholesky_decompose(prior))));
  real angle_lower = atan(1 / sqrt(r_upper));
  real angle_upper = atan(1 / sqrt(r_lower));
  if (held) {
    r_held = spatial_correlation(d, phi_lower, cov_model);
  }
}
parameters {
  vector<lower=0>[n_groups] root; // sqrt(T_kk + tau_sq_k)
  vector<lower=angle_lower, upper=angle_upper>[n_groups] angle;
  cholesky_factor_corr[n_groups] L; // factor of the correlation of T
  array[1 - held] real<lower=phi_lower, upper=phi_upper> phi_free;
}
transformed parameters {
  real phi = held ? phi_lower : phi_free[1];
  matrix[n_groups, n_groups] t_factor = diag_pre_multiply(root .* sin(angle),
                                          L);
  vector[n_groups] tau_sq = square(root .* cos(angle));
}
model {
  matrix[n_groups, n_groups] t = tcrossprod(t_factor);
  for (k in 1 : n_groups) {
    target += variance_lpdf(t[k, k] | variance_prior, sigma_par);
    target += variance_lpdf(tau_sq[k] | variance_prior, tau_par);
    // from (T_kk, tau_sq_k) to (root, angle)
    target += log(4) + log(sin(angle[k])) + log(cos(angle[k]))
              + 3 * log(root[k]);
  }
  if (n_groups > 1) {
    target += lkj_corr_cholesky_lpdf(L | lkj_eta);
  }
  if (held) {
    matrix[Q + 2, Q + 1] s
      = bordered_statistics(group_covariance(r_held, t, tau_sq, group_kept,
                              a_diag, protection),
                            z, 2 * z_size / min(tau_sq));
    target += collapsed_lpdf(s | precision, log_det_b, n);
  } else {
    matrix[Q + 2, Q + 1] s
      = bordered_statistics(group_covariance(
                              spatial_correlation(d, phi, cov_model), t,
                              tau_sq, group_kept, a_diag, protection),
                            z, 2 * z_size / min(tau_sq));
    target += decay_lpdf(phi | phi_lower, phi_upper, phi_rate);
    target += collapsed_lpdf(s | precision, log_det_b, n);
  }
}
generated quantities {
  matrix[n_groups, n_groups] T = tcrossprod(t_factor);
  vector[n_groups] sigma_sq = diagonal(T);
  vector[Q] beta;
  {
    matrix[n, n] v = group_covariance(spatial_correlation(d, phi, cov_model),
                                      T, tau_sq, group_kept, a_diag,
                                      protection);
    beta = coefficients_rng(bordered_statistics(v, z,
                              2 * z_size / min(tau_sq)), precision);
  }
}
