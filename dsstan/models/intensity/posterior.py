"""The posterior of log intensities given counts on cells, by expectation propagation.

For rows r = (k, c), groups within cells::

    n_r ~ Poisson(exp(eta_r)),   eta_r = o_c + x_r b + u_c,   u ~ N(0, sigma_sq R(phi))

with phi and sigma_sq held, a flat prior of each group's intercept and normal priors of the other
coefficients. Each likelihood is replaced by a normal factor that agrees with it in the mean and
variance of eta_r given all the others (Minka 2001; Rasmussen and Williams 2006, section 3.6). In
one dimension nothing is approximated, so that adding a record to a row, or taking one away, is
exact but for the shape of what the other rows say.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy.linalg import cho_solve, cholesky, lapack

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import ConvergenceError
from dsstan.models.intensity.tilted import Tilted, tilted

NEWTON = 40
NEWTON_CLOSE = 0.3
"""Newton's method, which finds where to begin, stops at steps of log intensity below."""
SWEEPS = 400
CLOSE = 1e-3
"""Sweeps of exact covariances stop where no mean of a log intensity moves by more, in its standard
deviations, and none of these by more than this share. The next would move them by about a tenth."""
SETTLED, DRIFT = 1e-6, 1e-4
"""Sweeps about exact covariances stop where one moves by less than the first, all together by less
than the second."""
FAR = 0.5
"""Largest change of a variance in such sweeps, a share of what other rows say of the cell."""
SHORTER, LONGER, SHORTEST = 0.5, 1.3, 0.1
"""Factors of the step after a sweep that moved more, or less, than the one before; and its least.
All rows answer at once, so that many that share a coefficient can go too far."""
BLOCK = 256
REACH = 3.0
"""A step of Newton's method changes a log intensity by at most so much."""


@dataclass(frozen=True, eq=False)
class CellModel:
    """The model without counts.

    Attributes
    ----------
    precision
        Inverse covariance of u, shape (C, C).
    offset
        Log exposure, shape (C,).
    X
        Design of the rows, shape (K, C, P).
    beta_precision
        Of the priors of the coefficients, 0 where flat, shape (P,).
    """

    precision: Floats = field(repr=False)
    offset: Floats = field(repr=False)
    X: Floats = field(repr=False)
    beta_precision: Floats = field(repr=False)

    @cached_property
    def log_determinant(self) -> float:
        """Of the precision of u."""
        return float(np.linalg.slogdet(self.precision)[1])

    def of_groups(self, some: Truths) -> CellModel:
        """The model of some of the groups, without the coefficients that only others have."""
        X = self.X[some]
        used = np.any(X != 0.0, axis=(0, 1))
        return replace(self, X=X[:, :, used], beta_precision=self.beta_precision[used])


@dataclass(frozen=True, eq=False)
class CellPosterior:
    """The posterior of eta given counts.

    Attributes
    ----------
    counts
        Shape (K, C).
    tau, nu
        Precision, and precision times mean, of each factor, shape (K, C).
    mean, variance
        Of eta under the normal posterior, shape (K, C).
    covariance
        Of u given the coefficients, shape (C, C).
    slope
        By how much u falls where a coefficient rises, shape (C, P).
    beta_covariance
        Shape (P, P).
    """

    model: CellModel = field(repr=False)
    counts: Floats = field(repr=False)
    tau: Floats = field(repr=False)
    nu: Floats = field(repr=False)
    mean: Floats = field(repr=False)
    variance: Floats = field(repr=False)
    covariance: Floats = field(repr=False)
    slope: Floats = field(repr=False)
    beta_covariance: Floats = field(repr=False)

    @cached_property
    def log_evidence(self) -> float:
        """Log probability of the counts but for what covariances of the cells have in common.

        By expectation propagation (Rasmussen and Williams 2006, eq. 3.73): the integral of the
        prior times the normal factors, each scaled to the integral of its likelihood.
        """
        model, tau, nu = self.model, self.tau, self.nu
        mu, v = _cavity(self.mean, self.variance, tau, nu)
        scale = tilted(self.counts, mu, v).log_z + 0.5 * np.log1p(v * tau)
        scale -= 0.5 * ((mu / v + nu) ** 2 / (1.0 / v + tau) - mu**2 / v)
        root = _with_diagonal(model.precision, tau.sum(axis=0))
        root = cholesky(root, lower=True, overwrite_a=True, check_finite=False)
        T, h = _sums(model, tau, nu)
        solved = cho_solve((root, True), np.column_stack([T, h]), check_finite=False)
        slope, u = solved[:, :-1], solved[:, -1]
        precision = _of_beta(model, tau, T, slope)
        linear = np.einsum("kcp,kc->p", model.X, nu - tau * model.offset) - T.T @ u
        exponent = h @ u + linear @ np.linalg.solve(precision, linear)
        exponent += np.sum((2.0 * nu - tau * model.offset) * model.offset)
        determinants = model.log_determinant - 2.0 * np.log(np.diag(root)).sum()
        determinants -= np.linalg.slogdet(precision)[1]
        return float(scale.sum() + 0.5 * (exponent + determinants))

    def cavity(self, group: int) -> tuple[Floats, Floats]:
        """Mean and variance of eta by all other rows, of the rows of a group, shape (C,) each."""
        return _cavity(self.mean[group], self.variance[group], self.tau[group], self.nu[group])

    def tilted(self, group: int, more: float = 0.0) -> Tilted:
        """The law of eta of the rows of a group with ``more`` records in the row, shape (C,)."""
        return tilted(np.maximum(self.counts[group] + more, 0.0), *self.cavity(group))

    def columns(self, group: int, cells: Indices) -> Floats:
        """Covariance of eta between the cells and all cells of a group, shape (n, C)."""
        rest = self.model.X[group] - self.slope
        out = self.covariance[cells].copy()
        out += (rest[cells] @ self.beta_covariance) @ rest.T
        return np.asarray(out)


def posterior(model: CellModel, counts: Floats, begin: Floats | None = None) -> CellPosterior:
    """Expectation propagation from the mode on; a function of its arguments alone.

    Covariances cost as much as all else. They are worked out exactly only where sweeps about the
    last exact ones have settled, or go too far.

    Parameters
    ----------
    model, counts
        Counts of shape (K, C), some in each group.
    begin
        Log intensities from which the mode is looked for, such as the mean given other counts.

    Raises
    ------
    ConvergenceError
        If it does not settle.
    """
    exact = _solve(model, counts, *_newton(model, counts, begin))
    found, near = exact, _Near(exact)
    step, last, settled, worse = 1.0, np.inf, False, False
    for _ in range(SWEEPS):
        mu, v = _cavity(found.mean, found.variance, found.tau, found.nu)
        law = tilted(counts, mu, v)
        new_tau = np.maximum(1.0 / law.variance - 1.0 / v, 0.0)
        new_nu = law.mean / law.variance - mu / v
        tau = found.tau + step * (new_tau - found.tau)
        nu = found.nu + step * (new_nu - found.nu)
        former, cautious = found, worse or near.too_far(tau)
        if settled or cautious:
            found = exact = _solve(model, counts, tau, nu)
            near = _Near(exact)
        else:
            found = near.at(tau, nu)
        moved = _moved(former, found) / step
        if cautious and moved < CLOSE:
            return exact
        settled, worse = moved < SETTLED, moved > last
        if settled and _moved(exact, found) < DRIFT:
            return found
        last = np.inf if settled else moved
        step = max(step * SHORTER, SHORTEST) if worse else min(step * LONGER, 1.0)
    raise ConvergenceError(
        "the law of the cells did not settle for these counts: give a mask of fewer, wider cells"
    )


class _Near:
    """Means and variances of factors near those of an exact posterior, without its cubic cost.

    The covariance S of u given the coefficients has the inverse Q + D with D the precisions of the
    cells. Solutions are refined by S, once a sweep; the variances follow D to first order, and
    exactly where one cell alone changes.
    """

    def __init__(self, exact: CellPosterior) -> None:
        self.exact, self.variance = exact, np.diag(exact.covariance)
        self.others = (1.0 - exact.tau * exact.variance).min(axis=0)
        T, h = _sums(exact.model, exact.tau, exact.nu)
        self.solved = exact.covariance @ np.column_stack([T, h])

    def too_far(self, tau: Floats) -> bool:
        """Whether variances to first order would be too rough, of which others' share is left."""
        return bool(np.any(np.abs(self._change(tau)) > FAR * self.others))

    def _change(self, tau: Floats) -> Floats:
        """By which share the precision of u in each cell rises, shape (C,)."""
        more, S = (tau - self.exact.tau).sum(axis=0), self.exact.covariance
        return np.asarray(np.einsum("ij,ij,j->i", S, S, more) / self.variance)

    def at(self, tau: Floats, nu: Floats) -> CellPosterior:
        """The posterior of given factors, about the covariance of the exact one."""
        exact = self.exact
        more = (tau - exact.tau).sum(axis=0)[:, None]
        T, h = _sums(exact.model, tau, nu)
        right = np.column_stack([T, h])
        self.solved = exact.covariance @ (right - more * self.solved)
        slope, u = self.solved[:, :-1], self.solved[:, -1]
        mean, beta_covariance = _means(exact.model, tau, nu, T, slope, u)
        own = self.variance / (1.0 + np.maximum(self._change(tau), -FAR))
        variance = own + _of_coefficients(exact.model, slope, beta_covariance)
        return replace(
            exact,
            tau=tau,
            nu=nu,
            mean=mean,
            variance=variance,
            slope=slope,
            beta_covariance=beta_covariance,
        )


def _moved(former: CellPosterior, found: CellPosterior) -> float:
    """The largest change of a mean, in standard deviations, and of the log of one of these.

    Means answer to variances a sweep later: either alone can stand still for once.
    """
    mean = np.max(np.abs(found.mean - former.mean) / np.sqrt(found.variance))
    spread = 0.5 * np.max(np.abs(np.log(found.variance / former.variance)))
    return float(max(mean, spread))


def _newton(model: CellModel, counts: Floats, begin: Floats | None) -> tuple[Floats, Floats]:
    """Normal factors at about the mode: precision, and precision times mean, shape (K, C)."""
    if begin is None:
        rate = counts + 0.5 * np.minimum(1.0, counts.mean(axis=1, keepdims=True))
        eta = np.log(rate)
        tau, nu = rate, rate * eta
    else:
        eta, rate = begin, np.exp(begin)
        tau, nu = rate, rate * eta + counts - rate
    for _ in range(NEWTON):
        new = _mean(model, tau, nu)
        step = np.clip(new - eta, -REACH, REACH)
        eta = eta + step
        rate = np.exp(eta)
        tau, nu = rate, rate * eta + counts - rate
        if np.max(np.abs(step)) < NEWTON_CLOSE:
            break
    return tau, nu


def _cavity(mean: Floats, variance: Floats, tau: Floats, nu: Floats) -> tuple[Floats, Floats]:
    """Mean and variance without a factor of one's own."""
    precision = 1.0 / variance - tau
    return (mean / variance - nu) / precision, 1.0 / precision


def _mean(model: CellModel, tau: Floats, nu: Floats) -> Floats:
    """Mean of eta, shape (K, C), without variances: a third of the work."""
    root = _with_diagonal(model.precision, tau.sum(axis=0))
    root = cholesky(root, lower=True, overwrite_a=True, check_finite=False)
    T, h = _sums(model, tau, nu)
    solved = cho_solve((root, True), np.column_stack([T, h]), check_finite=False)
    return _means(model, tau, nu, T, solved[:, :-1], solved[:, -1])[0]


def _solve(model: CellModel, counts: Floats, tau: Floats, nu: Floats) -> CellPosterior:
    """The normal posterior of given factors."""
    covariance = inverse(_with_diagonal(model.precision, tau.sum(axis=0)))
    T, h = _sums(model, tau, nu)
    slope = covariance @ T
    mean, beta_covariance = _means(model, tau, nu, T, slope, covariance @ h)
    variance = np.diag(covariance) + _of_coefficients(model, slope, beta_covariance)
    return CellPosterior(model, counts, tau, nu, mean, variance, covariance, slope, beta_covariance)


def _of_coefficients(model: CellModel, slope: Floats, beta_covariance: Floats) -> Floats:
    """Variance of eta that the coefficients add, shape (K, C)."""
    rest = model.X - slope
    return np.asarray(np.einsum("kcp,pq,kcq->kc", rest, beta_covariance, rest, optimize=True))


def _sums(model: CellModel, tau: Floats, nu: Floats) -> tuple[Floats, Floats]:
    """What the factors say of u: its coupling to coefficients (C, P), and precision times mean."""
    return np.einsum("kc,kcp->cp", tau, model.X), (nu - tau * model.offset).sum(axis=0)


def _means(
    model: CellModel, tau: Floats, nu: Floats, T: Floats, slope: Floats, u: Floats
) -> tuple[Floats, Floats]:
    """Mean of eta, shape (K, C), and covariance of the coefficients, from u where they are 0."""
    X, P = model.X, T.shape[1]
    root = cholesky(_of_beta(model, tau, T, slope), lower=True, check_finite=False)
    beta_covariance = cho_solve((root, True), np.eye(P), check_finite=False)
    b = beta_covariance @ (np.einsum("kcp,kc->p", X, nu - tau * model.offset) - T.T @ u)
    return model.offset + X @ b + (u - slope @ b), beta_covariance


def _of_beta(model: CellModel, tau: Floats, T: Floats, slope: Floats) -> Floats:
    """Precision of the coefficients, shape (P, P)."""
    precision = np.einsum("kcp,kc,kcq->pq", model.X, tau, model.X, optimize=True) - T.T @ slope
    return np.asarray(precision + np.diag(model.beta_precision))


def _with_diagonal(matrix: Floats, diagonal: Floats) -> Floats:
    """A copy with more on its diagonal, in Fortran's order."""
    out = np.array(matrix, order="F")
    out[np.diag_indices_from(out)] += diagonal
    return out


def inverse(matrix: Floats) -> Floats:
    """Inverse of a positive definite matrix, which is overwritten."""
    root, info = lapack.dpotrf(matrix, lower=1, overwrite_a=1)
    if info == 0:
        root, info = lapack.dpotri(root, lower=1, overwrite_c=1)
    if info != 0:
        raise ConvergenceError(
            "the covariance of the cells is not positive definite: give a larger phi, or the "
            "exponential correlation"
        )
    for begin in range(0, len(root), BLOCK):  # only the lower triangle is there
        end = begin + BLOCK
        square = np.tril(root[begin:end, begin:end])
        root[begin:end, begin:end] = square + np.tril(square, -1).T
        root[begin:end, end:] = root[end:, begin:end].T
    return np.asarray(root)
