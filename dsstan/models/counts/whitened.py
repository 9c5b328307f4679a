"""A latent Gaussian model in coordinates that are nearly independent a posteriori.

The model, for N records at m sites::

    y_i ~ p(y_i | eta_i),   eta = offset + X beta + A w[site],   w ~ N(0, sigma_sq R(phi))

theta is (log phi, log sigma_sq), and the log of the dispersion where the outcome has one, unless
the outcome has other coordinates for the variances. w is a Vecchia process
(:mod:`dsstan.covariance.vecchia.site_process`). Given data it is nearly one again, so that at each
theta Laplace's approximation (Tierney and Kadane 1986) is a map from z to x = (beta, w), built of
sparse triangular factors, under which z is nearly N(0, I) and nearly independent of theta, however
informative the data are. The determinant of the map is exact: only its usefulness rests on the
approximation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from dsstan.core.arrays import Floats
from dsstan.covariance.vecchia.site_process import SiteProcess, Weights
from dsstan.models.counts.outcomes import Outcome

NEWTON_STEPS = 50
NEWTON_CLOSE = 1e-3
"""Newton stops where a step would raise the log density by less."""

GRADIENTS = 3
"""Conjugate gradients for each coefficient of a frame."""

WILD = 1000.0
"""Error of the energy from which on a trajectory counts as divergent, as in Stan."""
ANGLE = (0.35 * np.pi, 0.65 * np.pi)
"""A trajectory turns by a quarter on average: z and its momentum change places."""


@dataclass(frozen=True)
class Frame:
    """The whitened coordinates at one theta.

    Attributes
    ----------
    process
        B and the variances of w before the data, sigma_sq in them.
    log_size
        Log dispersion; 0 where there is none.
    centre
        About the mode of x = (beta, w), shape (P + m,).
    given
        B and the variances of w given the data and beta.
    slope
        By how much w falls where a coefficient rises, shape (m, P).
    root, unroot
        Lower Cholesky factor of the precision of beta, and its inverse, shapes (P, P).
    log_det
        Log determinant of the map from z to x.
    log_scale
        Log determinant of the map from independent normals to w before the data.
    """

    process: Weights
    log_size: float
    centre: Floats
    given: Weights
    slope: Floats
    root: Floats
    unroot: Floats
    log_det: float
    log_scale: float


class WhitenedModel:
    """The model of one fit: its joint log density, and frames.

    Parameters
    ----------
    outcome
        Likelihood and link.
    y, offset, X, A
        Response, offset on the link scale, design matrix and diagonal of A, N rows.
    process
        Of w at the m sites.
    site
        Site of each record, (N,), as they are numbered outside the process.
    beta_scale
        Standard deviations of the normal priors of the coefficients, shape (P,).
    """

    def __init__(
        self,
        outcome: Outcome,
        y: Floats,
        offset: Floats,
        X: Floats,
        A: Floats,
        process: SiteProcess,
        site: NDArray[np.int64],
        beta_scale: Floats,
    ) -> None:
        self.outcome, self.y, self.offset = outcome, y, offset
        self.X, self.A, self.process, self.beta_scale = X, A, process, beta_scale
        self.P, self.m = int(X.shape[1]), process.order.size
        self.place_of = np.argsort(process.order)
        self.site = self.place_of[site]

    @property
    def M(self) -> int:
        """Length of x and z."""
        return self.P + self.m

    @property
    def start(self) -> Floats:
        """x where Newton's method may begin: least squares of a value near each record."""
        near = self.outcome.start(self.y) - self.offset
        return np.concatenate([np.linalg.lstsq(self.X, near, rcond=None)[0], np.zeros(self.m)])

    def at_sites(self, values: Floats) -> Floats:
        """Sums over the records of each site."""
        return np.asarray(np.bincount(self.site, weights=values, minlength=self.m))

    def natural(self, x: Floats) -> tuple[Floats, Floats]:
        """beta (P,) and w at the sites (m,), as these are numbered outside the process."""
        return x[: self.P].copy(), x[self.P :][self.place_of]

    def eta(self, x: Floats) -> Floats:
        """Linear predictor, shape (N,)."""
        return np.asarray(self.offset + self.X @ x[: self.P] + self.A * x[self.P :][self.site])

    def log_joint(self, frame: Frame, x: Floats) -> float:
        """log p(y, x | theta) but a constant."""
        value = self.outcome.log_likelihood(self.y, self.eta(x), frame.log_size)
        value -= 0.5 * float(np.sum((x[: self.P] / self.beta_scale) ** 2)) + frame.log_scale
        return value - 0.5 * float(np.sum(self.prior_find(frame, x) ** 2))

    def gradient(self, frame: Frame, x: Floats) -> Floats:
        """Gradient of :meth:`log_joint` by x."""
        score, _ = self.outcome.slopes(self.y, self.eta(x), frame.log_size)
        out = np.empty(self.M)
        out[: self.P] = score @ self.X - x[: self.P] / self.beta_scale**2
        out[self.P :] = self.at_sites(self.A * score)
        out[self.P :] -= self.process.precision_times(frame.process, x[self.P :])
        return out

    def frame(self, theta: Floats, centre: Floats) -> Frame:
        """The frame at one theta about one x, a function of the arguments alone."""
        log_sigma_sq, log_size = map(float, self.outcome.scales(theta))
        weights, variance = self.process.weights(float(theta[0]))
        process = weights, float(np.exp(log_sigma_sq)) * variance
        _, information = self.outcome.slopes(self.y, self.eta(centre), log_size)
        observed = self.at_sites(self.A**2 * information)
        given = self.process.given(process, observed)
        slope = np.empty((self.m, self.P))
        precision = np.diag(1.0 / self.beta_scale**2)
        for j in range(self.P):
            right = self.at_sites(self.A * information * self.X[:, j])
            slope[:, j] = self._solve(process, observed, given, right)
        left = self.X - self.A[:, None] * slope[self.site]
        precision += (left * information[:, None]).T @ left
        prior = np.stack([self.process.whiten(process, column) for column in slope.T])
        root = cholesky(precision + prior @ prior.T, lower=True, check_finite=False)
        unroot = solve_triangular(root, np.eye(self.P), lower=True, check_finite=False)
        log_det = 0.5 * float(np.sum(np.log(given[1]))) - float(np.sum(np.log(np.diag(root))))
        log_scale = 0.5 * float(np.sum(np.log(process[1])))
        return Frame(process, log_size, centre, given, slope, root, unroot, log_det, log_scale)

    def _solve(self, process: Weights, observed: Floats, given: Weights, right: Floats) -> Floats:
        """The precision of w given the data, inverted, times a vector.

        By a few conjugate gradients: coefficients and w would depend on one another in
        whitened coordinates by as much as is missing, times the root of the number of records.
        """
        site = self.process

        def nearly(g: Floats) -> Floats:
            return site.colour(given, site.colour_transposed(given, g))

        out = nearly(right)
        residual = right - site.precision_times(process, out) - observed * out
        direction = fresh = nearly(residual)
        size = float(residual @ fresh)
        for _ in range(GRADIENTS):
            if size <= 0.0:
                break
            along = site.precision_times(process, direction) + observed * direction
            length = size / float(direction @ along)
            out = out + length * direction
            residual = residual - length * along
            fresh = nearly(residual)
            former, size = size, float(residual @ fresh)
            direction = fresh + (size / former) * direction
        return np.asarray(out)

    def mode_frame(self, theta: Floats, x: Floats) -> Frame:
        """The frame about the mode of x, which Newton's method finds from ``x`` on."""
        frame = self.frame(theta, x)
        value = self.log_joint(frame, x)
        for _ in range(NEWTON_STEPS):
            step, rise = self.newton_step(frame, x)
            if rise < NEWTON_CLOSE:
                break
            size = 1.0
            while (new := self.log_joint(frame, x + size * step)) <= value and size > 1e-4:
                size *= 0.5
            if new <= value:
                break
            x, value = x + size * step, new
            frame = self.frame(theta, x)
        return frame

    def newton_step(self, frame: Frame, x: Floats) -> tuple[Floats, float]:
        """One step of Newton's method from x, and twice the rise that it expects."""
        push = self.pull(frame, self.gradient(frame, x))
        return self.place(frame, push) - frame.centre, float(push @ push)

    def place(self, frame: Frame, z: Floats) -> Floats:
        """x at z."""
        beta = z[: self.P] @ frame.unroot
        w = self.process.colour(frame.given, z[self.P :]) - frame.slope @ beta
        return np.asarray(frame.centre + np.concatenate([beta, w]))

    def find(self, frame: Frame, x: Floats) -> Floats:
        """z at x, the inverse of :meth:`place`."""
        beta, w = np.split(x - frame.centre, [self.P])
        z = self.process.whiten(frame.given, w + frame.slope @ beta)
        return np.concatenate([frame.root.T @ beta, z])

    def pull(self, frame: Frame, gradient: Floats) -> Floats:
        """Gradient by z of a gradient by x."""
        beta, w = np.split(gradient, [self.P])
        beta = frame.unroot @ (beta - w @ frame.slope)
        return np.concatenate([beta, self.process.colour_transposed(frame.given, w)])

    def prior_find(self, frame: Frame, x: Floats) -> Floats:
        """w in units of its prior, independent normals before the data."""
        return self.process.whiten(frame.process, x[self.P :])

    def prior_place(self, frame: Frame, x: Floats, u: Floats) -> Floats:
        """x with w at u, the inverse of :meth:`prior_find`."""
        return np.concatenate([x[: self.P], self.process.colour(frame.process, u)])

    def log_mean_joint(self, frame: Frame, z: Floats, base: Floats) -> float:
        """Log of the mean of exp(log joint - base) at rows of z (K, M), base (K,)."""
        logs = np.array([self.log_joint(frame, self.place(frame, row)) for row in z])
        return float(np.logaddexp.reduce(logs - base) - np.log(base.size))


def turn(
    model: WhitenedModel,
    frame: Frame,
    z: Floats,
    x: Floats,
    value: float,
    kicks: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, float, float, float, bool]:
    """One Hamiltonian trajectory of z: new z, x and log joint; acceptance, energy, divergence.

    The Hamiltonian is that of N(0, I), whose flow is a rotation, plus a residual that is flat
    where Laplace's approximation is exact.
    """
    momentum = rng.standard_normal(z.size)
    angle = rng.uniform(*ANGLE) / kicks
    cos, sin = np.cos(angle), np.sin(angle)
    energy = 0.5 * float(momentum @ momentum) - value

    def residual(z: Floats, x: Floats) -> Floats:
        return model.pull(frame, model.gradient(frame, x)) + z

    new_z, new_x = z, x
    with np.errstate(all="ignore"):
        push = residual(new_z, new_x)
        for _ in range(kicks):
            momentum = momentum + 0.5 * angle * push
            new_z, momentum = cos * new_z + sin * momentum, cos * momentum - sin * new_z
            new_x = model.place(frame, new_z)
            push = residual(new_z, new_x)
            momentum = momentum + 0.5 * angle * push
        new_value = model.log_joint(frame, new_x)
        change = 0.5 * float(momentum @ momentum) - new_value - energy
    accept = float(np.exp(min(0.0, -change))) if np.isfinite(change) else 0.0
    wild = not change < WILD
    if rng.random() < accept:
        return new_z, new_x, new_value, accept, energy, wild
    return z, x, value, accept, energy, wild
