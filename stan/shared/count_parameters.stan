// Parameters that the three models of counts have in common.
vector[P] beta;
real<lower=sigma_sq_lower, upper=sigma_sq_upper> sigma_sq;
array[held ? 0 : 1] real<lower=phi_lower, upper=phi_upper> phi_free;
vector[n_sites] z; // w without its scale and correlation
