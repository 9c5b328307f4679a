// Data of poisson.stan, negative_binomial.stan and bernoulli.stan but for y.
int<lower=1> N; // records
int<lower=1> P; // columns of the design matrix, intercept included
int<lower=1> n_sites; // distinct sites
matrix[N, P] X; // design matrix
vector[N] shift; // offset on the link scale, 0 where there is none
matrix[n_sites, 2] coords; // planar coordinates of the sites, all distinct
array[N] int<lower=1, upper=n_sites> site; // site of each record
vector<lower=0, upper=1>[N] A; // diagonal of A; 1 unflagged, 0 fully smoothed
// A switch because R alone differs, and fits are compared under each.
int<lower=1, upper=3> cov_model; // 1 exponential, 2 Matern 3/2, 3 Matern 5/2
real<lower=0> phi_lower; // bounds of the decay, inverse of their unit
real<lower=phi_lower> phi_upper; // equal where phi is held
real<lower=0> sigma_sq_lower; // bounds of sigma_sq
real<lower=sigma_sq_lower> sigma_sq_upper;
vector<lower=0>[P] beta_scale; // beta_j ~ normal(0, beta_scale_j)
// A switch because results should hold under both: fit twice.
int<lower=1, upper=2> variance_prior; // 1 half-normal root, 2 inverse gamma
array[2] real<lower=0> sigma_par; // scale, unused; or shape, scale
// A switch because copies take room and time, and fits need none.
int<lower=0, upper=1> draw_latent; // 1: draw a synthetic y
