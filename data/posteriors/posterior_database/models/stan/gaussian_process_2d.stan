/**
 * The marginal models with one Cholesky factor a gradient and no surface, the
 * way they are usually written. An oracle for the surface programs and the
 * yardstick of their speed.
 *
 *   y ~ normal(X beta, sigma_sq A R(phi) A + D), D as in restricted.stan
 */
functions {
  /**
   * Distances between two sets of planar points.
   *
   * @param s points, one a row (matrix n x 2)
   * @param t points, one a row (matrix m x 2)
   * @return distances in the unit of the coordinates (matrix n x m)
   */
  matrix distances(matrix s, matrix t) {
    int n = rows(s);
    int m = rows(t);
    matrix[n, m] d;
    for (j in 1 : m) {
      for (i in 1 : n) {
        d[i, j] = sqrt(square(s[i, 1] - t[j, 1]) + square(s[i, 2] - t[j, 2]));
      }
    }
    return d;
  }

  /**
   * Correlation of the exponential model.
   *
   * @param d distances, any unit (matrix n x m)
   * @param phi decay, inverse of that unit
   * @return exp(-phi * d), one at distance zero
   */
  matrix exponential_correlation(matrix d, real phi) {
    return exp(-phi * d);
  }

  /**
   * Correlation by its code: Matern's with smoothness 1/2, 3/2 or 5/2, in the
   * scale where phi is the inverse of the distance.
   *
   * @param d distances, any unit (matrix n x m)
   * @param phi decay, inverse of that unit
   * @param kind 1 exponential, 2 Matern 3/2, 3 Matern 5/2
   * @return correlations, one at distance zero (matrix n x m)
   */
  matrix spatial_correlation(matrix d, real phi, int kind) {
    if (kind == 2) {
      return (1 + phi * d) .* exp(-phi * d);
    }
    if (kind == 3) {
      return (1 + phi * d + square(phi * d) / 3) .* exp(-phi * d);
    }
    return exponential_correlation(d, phi);
  }

  /**
   * Records that inform the fit: all of them, or under "cut" the unflagged.
   *
   * @param a_diag diagonal of A, one where a record is not smoothed (vector N)
   * @param protection 1 paper, 2 preserving, 3 cut
   * @return their numbers, ascending
   */
  array[] int informing_records(vector a_diag, int protection) {
    int n = num_elements(a_diag);
    array[n] int kept;
    int k = 0;
    for (i in 1 : n) {
      if (protection != 3 || a_diag[i] == 1) {
        k += 1;
        kept[k] = i;
      }
    }
    return kept[1 : k];
  }

  /**
   * The matrix M in V = sigma_sq * (M + r I): A R A under "paper" and "cut",
   * A R A + I - A^2 under "preserving".
   *
   * @param d distances among the informing records (matrix n x n)
   * @param phi decay
   * @param a_diag diagonal of A of those records (vector n)
   * @param protection 1 paper, 2 preserving, 3 cut
   * @param kind correlation function, as spatial_correlation takes it
   * @return M, symmetric and non-negative definite (matrix n x n)
   */
  matrix smoothed_correlation(matrix d, real phi, vector a_diag,
                              int protection, int kind) {
    matrix[rows(d), cols(d)] m = spatial_correlation(d, phi, kind)
                                 .* (a_diag * a_diag');
    if (protection == 2) {
      m = add_diag(m, 1 - square(a_diag));
    }
    return m;
  }
  /**
   * Log prior density of a variance, all constants kept.
   *
   * @param v the variance
   * @param kind 1: its root is half-normal(0, par[1]); 2: inverse
   *   gamma(par[1], par[2])
   * @param par the prior's settings
   * @return log density of v
   */
  real variance_lpdf(real v, int kind, array[] real par) {
    if (kind == 1) {
      return normal_lpdf(sqrt(v) | 0, par[1]) - 0.5 * log(v);
    }
    return inv_gamma_lpdf(v | par[1], par[2]);
  }
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
