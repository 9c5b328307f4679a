"""The deliberate errors that ``mutations.py`` puts into a copy of the repository."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One deliberate error.

    Attributes
    ----------
    name
        What is wrong.
    file
        Below the repository's root.
    before, after
        The text replaced, which occurs once, and what it becomes.
    tests
        Which tests of ``tests/parity/test_parity.py`` should see it, as pytest's ``-k`` takes them.
    """

    name: str
    file: str
    before: str
    after: str
    tests: str


COVARIANCE = "stan/functions/covariance.stanfunctions"
CHOLESKY = "density and cholesky and hand"

MUTATIONS = (
    Mutation(
        "correlation 1% off in Stan",
        COVARIANCE,
        "return exp(-phi * d);",
        "return exp(-1.01 * phi * d);",
        "correlation and exponential",
    ),
    Mutation(
        "correlation 1% off in the surface",
        "dsstan/covariance/surface_statistics.py",
        "return smoothed(correlation(d, phi, cov_model), a_diag, protection)",
        "return smoothed(correlation(d, 1.01 * phi, cov_model), a_diag, protection)",
        "node_statistics and hand",
    ),
    Mutation(
        "correlation 1% off in the prediction at new places",
        "dsstan/covariance/latent.py",
        "pairs_of_places(self.model, places, self.first, time).at(p.phi)",
        "pairs_of_places(self.model, places, self.first, time).at(1.01 * p.phi)",
        "predicted and hand",
    ),
    Mutation(
        "correlation 1% off in w given y",
        "dsstan/covariance/latent.py",
        "R = pairs.at(phi)",
        "R = pairs.at(1.01 * phi)",
        "latent and mean and hand",
    ),
    Mutation(
        "distances in Stan take one coordinate twice",
        COVARIANCE,
        "square(s[i, 2] - t[j, 2])",
        "square(s[i, 1] - t[j, 1])",
        "distances and Stan",
    ),
    Mutation(
        "nugget 1% off in the surface",
        "dsstan/covariance/surface_statistics.py",
        "solved(diagonal + x, off, qz)",
        "solved(diagonal + 1.01 * x, off, qz)",
        "node_statistics and hand",
    ),
    Mutation(
        "nugget 1% off in Stan's surface",
        "stan/functions/surface.stanfunctions",
        "vector[n] c = lambda + r[h];",
        "vector[n] c = lambda + 1.01 * r[h];",
        "density and unrestricted and hand",
    ),
    Mutation(
        "nugget 1% off in the Cholesky program",
        "stan/reference/cholesky.stan",
        "add_diag(sigma_sq * m, tau_sq)",
        "add_diag(sigma_sq * m, 1.01 * tau_sq)",
        CHOLESKY,
    ),
    Mutation(
        "nugget 1% off in w given y",
        "dsstan/covariance/latent.py",
        "V[np.diag_indices_from(V)] += p.tau_sq",
        "V[np.diag_indices_from(V)] += 1.01 * p.tau_sq",
        "latent and variance and hand",
    ),
    Mutation(
        "nugget taken for a standard deviation in hier.stan",
        "stan/reference/hier.stan",
        "normal_lpdf(y | X * beta + w[site], sqrt(tau_sq))",
        "normal_lpdf(y | X * beta + w[site], tau_sq)",
        "density and hier",
    ),
    Mutation(
        "no constant in the log density",
        "dsstan/covariance/surface_statistics.py",
        "(_LOG_PI_2 + np.log(sigma_sq))",
        "np.log(sigma_sq)",
        "node_statistics and hand",
    ),
    Mutation(
        "half-normal prior without the root's Jacobian",
        "stan/functions/priors.stanfunctions",
        "normal_lpdf(sqrt(v) | 0, par[1]) - 0.5 * log(v)",
        "normal_lpdf(sqrt(v) | 0, par[1])",
        "variance_lpdf",
    ),
    Mutation(
        "inverse gamma with shape and scale exchanged",
        "stan/functions/priors.stanfunctions",
        "inv_gamma_lpdf(v | par[1], par[2])",
        "inv_gamma_lpdf(v | par[2], par[1])",
        "variance_lpdf",
    ),
    Mutation(
        "no prior of the decay in surface.stan",
        "stan/surface.stan",
        "target += decay_lpdf(phi | phi_lower, phi_upper, phi_rate);",
        "",
        "density and surface and free and nodes and hand",
    ),
    Mutation(
        "preserving without I - A^2 in the surface",
        "dsstan/covariance/surface_statistics.py",
        "m[np.diag_indices_from(m)] += removed_variance(a_diag, protection)",
        "pass",
        "node_statistics and hand and preserving",
    ),
    Mutation(
        "preserving without I - A^2 in Stan",
        COVARIANCE,
        "m = add_diag(m, 1 - square(a_diag));",
        "",
        "density and cholesky and hand and preserving",
    ),
    Mutation(
        "preserving draws too little noise for w",
        "dsstan/covariance/latent.py",
        "variance = p.tau_sq + p.sigma_sq * removed",
        "variance = p.tau_sq + 0.0 * removed",
        "drawn_copies",
    ),
    Mutation(
        "cut keeps the flagged records",
        "dsstan/covariance/protection.py",
        "return np.asarray(A == 1.0)",
        "return np.ones(A.size, dtype=bool)",
        "latent and cut and hand",
    ),
    Mutation(
        "cut keeps the flagged records in Stan",
        COVARIANCE,
        "if (protection != 3 || a_diag[i] == 1) {",
        "if (protection != 3 || a_diag[i] >= 0) {",
        "density and cholesky and hand and cut",
    ),
    Mutation(
        "A without its root",
        "dsstan/models/weights.py",
        "1.0 / np.sqrt(1.0 + gamma * a)",
        "1.0 / (1.0 + gamma * a)",
        "correlation",
    ),
    Mutation(
        "an infinite gamma smooths no record",
        "dsstan/models/weights.py",
        "return np.where(a > 0, 0.0, 1.0)",
        "return np.where(a > 1, 0.0, 1.0)",
        "correlation",
    ),
    Mutation(
        "-log(c) with the wrong sign",
        "dsstan/covariance/correlation.py",
        "float(-np.log(c) / phi)",
        "float(np.log(c) / phi)",
        "weights",
    ),
    Mutation(
        "a flag needs a distance above M, not at M",
        "dsstan/models/flagging/flags.py",
        "a=(nearest >= threshold)",
        "a=(nearest > threshold)",
        "weights",
    ),
    Mutation(
        "P(flag) misses thresholds that equal the distance",
        "dsstan/models/flagging/flags.py",
        'nearest, side="right")',
        'nearest, side="left")',
        "weights",
    ),
    Mutation(
        "the neighbour before the k-th",
        "dsstan/models/weights.py",
        "kth = np.asarray(distance[:, neighbour], dtype",
        "kth = np.asarray(distance[:, neighbour - 1], dtype",
        "distances and neighbour",
    ),
    Mutation(
        "alpha ignores the 1 in 1 + gamma",
        "dsstan/models/weights.py",
        "kept = sigma_sq / (1.0 + gamma)",
        "kept = sigma_sq / (0.99 + gamma)",
        "weights and alpha",
    ),
    Mutation(
        "copies carry w* instead of w",
        "dsstan/models/predictive.py",
        "self.carried * w, chain",
        "self.fit.A * w, chain",
        "drawn_copies",
    ),
    Mutation(
        "copies of every protection carry w*",
        "dsstan/models/predictive.py",
        "return np.ones_like(A)",
        "return np.where(A == 0, 1.0, A)",
        "latent and copy and hand",
    ),
    Mutation(
        "copies without the nugget",
        "dsstan/models/predictive.py",
        "variance = p.tau_sq if self.added is None",
        "variance = 0.0 * p.tau_sq if self.added is None",
        "drawn_copies",
    ),
    Mutation(
        "pooling by Rubin's rule",
        "dsstan/analysis/combining.py",
        "variance = u_bar + b / copies",
        "variance = u_bar + (1 + 1 / copies) * b",
        "regression",
    ),
    Mutation(
        "pooled degrees of freedom 1% off",
        "dsstan/analysis/combining.py",
        "df = (copies - 1) * (1.0",
        "df = 1.01 * (copies - 1) * (1.0",
        "regression",
    ),
    Mutation(
        "residual variance over n",
        "dsstan/analysis/utility.py",
        "(residual @ residual) / (n - p)",
        "(residual @ residual) / n",
        "regression and least",
    ),
    Mutation(
        "normal instead of t intervals",
        "dsstan/analysis/combining.py",
        "half = stdtrit(np.where(b > 0, df, np.inf), 0.5 + level / 2)",
        "half = stdtrit(1e9 + 0.0 * df, 0.5 + level / 2)",
        "regression",
    ),
    Mutation(
        "a summary's bulk size is that of the tails",
        "dsstan/models/result.py",
        '"ess_bulk": np.nan if held else ess(d, "bulk")',
        '"ess_bulk": np.nan if held else ess(d, "tail")',
        "diagnostics",
    ),
    Mutation(
        "tails at 10% instead of 5%",
        "dsstan/models/checks/diagnostics.py",
        "tails = (0.05, 0.95)",
        "tails = (0.10, 0.90)",
        "diagnostics",
    ),
    Mutation(
        "R-hat without ranks",
        "dsstan/models/checks/diagnostics.py",
        'method="rank"',
        'method="split"',
        "diagnostics",
    ),
    Mutation(
        "energy diagnostic of the best chain",
        "dsstan/models/checks/verdict.py",
        "return float(np.min(ratio)) if",
        "return float(np.max(ratio)) if",
        "diagnostics and energy",
    ),
    Mutation(
        "a changed script without a fresh golden",
        "tests/parity/common.R",
        "EXACT <- 1e-10",
        "EXACT <- 1e-9",
        "golden_was_written",
    ),
)
