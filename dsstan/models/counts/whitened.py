"""A latent Gaussian model in coordinates that are nearly independent a posteriori.

The model, for N records at m sites::

    y_i ~ p(y_i | eta_i),   eta = offset + X beta + A w[site],   w ~ N(0, sigma_sq R(phi))

theta is (log phi, log sigma_sq), and the log of the dispersion where the outcome has one. With
L L' = R(phi), beta and w are linear in u ~ N(0, I), so that ``eta = offset + H(theta) u``. At each
theta Newton's method finds the mode of u and the Cholesky factor C of its precision there
(Laplace's approximation, Tierney and Kadane 1986); ``u = mode + C'^-1 z`` then makes (theta, z)
nearly independent, z nearly N(0, I), however informative the data are. The map is exact: only its
usefulness rests on the approximation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from dsstan.core.arrays import Floats
from dsstan.covariance.correlation import correlation
from dsstan.covariance.latent import correlation_factor
from dsstan.models.counts.outcomes import Outcome

NEWTON_STEPS = 50
NEWTON_CLOSE = 1e-8
"""Newton stops where a step would raise the log density by less."""

WILD = 1000.0
"""Error of the energy from which on a trajectory counts as divergent, as in Stan."""
ANGLE = (0.35 * np.pi, 0.65 * np.pi)
"""A trajectory turns by a quarter on average: z and its momentum change places."""


@dataclass(frozen=True)
class Frame:
    """The whitened coordinates at one theta.

    Attributes
    ----------
    H
        Linear map from u to the linear predictor, shape (N, M).
    log_size
        Log dispersion; 0 where there is none.
    centre
        Mode of u, shape (M,).
    C
        Lower Cholesky factor of the precision of u, shape (M, M).
    log_det
        Log determinant of the map from z to u.
    """

    H: Floats
    log_size: float
    centre: Floats
    C: Floats
    log_det: float

    def place(self, z: Floats) -> Floats:
        """u at z."""
        return np.asarray(self.centre + blas.dtrsv(self.C, z, lower=1, trans=1))

    def find(self, u: Floats) -> Floats:
        """z at u, the inverse of :meth:`place`."""
        return np.asarray(blas.dtrmv(self.C, u - self.centre, lower=1, trans=1))

    def pull(self, gradient: Floats) -> Floats:
        """Gradient by z of a gradient by u."""
        return np.asarray(blas.dtrsv(self.C, gradient, lower=1))


class WhitenedModel:
    """The model of one fit: its joint log density, and frames.

    Parameters
    ----------
    outcome
        Likelihood and link.
    y, offset, X, A
        Response, offset on the link scale, design matrix and diagonal of A, N rows.
    d_sites, site
        Distances between the m sites (m, m), and the site of each record (N,).
    beta_scale
        Standard deviations of the normal priors of the coefficients, shape (P,).
    cov_model
        Name of the correlation function.
    """

    def __init__(
        self,
        outcome: Outcome,
        y: Floats,
        offset: Floats,
        X: Floats,
        A: Floats,
        d_sites: Floats,
        site: NDArray[np.int64],
        beta_scale: Floats,
        cov_model: str,
    ) -> None:
        self.outcome, self.y, self.offset = outcome, y, offset
        self.A, self.d_sites, self.site = A, d_sites, site
        self.beta_scale, self.cov_model = beta_scale, cov_model
        self.XS = X * beta_scale
        self.P, self.m = int(X.shape[1]), len(d_sites)
        self.start = outcome.start(y)
        self.factor = lru_cache(maxsize=8)(self._factor)

    @property
    def M(self) -> int:
        """Length of u."""
        return self.P + self.m

    def _factor(self, log_phi: float) -> Floats:
        """F with F F' = R(phi) among the sites."""
        return correlation_factor(correlation(self.d_sites, float(np.exp(log_phi)), self.cov_model))

    def design(self, theta: Floats) -> Floats:
        """H: eta = offset + H u."""
        H = np.empty((self.y.size, self.M), order="F")
        H[:, : self.P] = self.XS
        factor = self.factor(float(theta[0]))
        H[:, self.P :] = (np.exp(0.5 * theta[1]) * self.A)[:, None] * factor[self.site]
        return H

    def natural(self, theta: Floats, u: Floats) -> tuple[Floats, Floats]:
        """beta (P,) and w at the sites (m,)."""
        w = np.exp(0.5 * theta[1]) * (self.factor(float(theta[0])) @ u[self.P :])
        return self.beta_scale * u[: self.P], np.asarray(w)

    def eta(self, H: Floats, u: Floats) -> Floats:
        """Linear predictor, shape (N,)."""
        return np.asarray(self.offset + blas.dgemv(1.0, H, u))

    def log_joint(self, frame: Frame, u: Floats) -> float:
        """log p(y | u) - u'u / 2: the log joint density of y and u but a constant."""
        return self._log_joint(frame.H, frame.log_size, u)

    def _log_joint(self, H: Floats, log_size: float, u: Floats) -> float:
        value = self.outcome.log_likelihood(self.y, self.eta(H, u), log_size)
        return value - 0.5 * float(u @ u)

    def gradient(self, frame: Frame, u: Floats) -> Floats:
        """Gradient of :meth:`log_joint` by u."""
        score, _ = self.outcome.slopes(self.y, self.eta(frame.H, u), frame.log_size)
        return np.asarray(blas.dgemv(1.0, frame.H, score, trans=1)) - u

    def frame(self, theta: Floats, eta: Floats, steps: int = NEWTON_STEPS) -> Frame:
        """The frame at one theta, a function of the arguments alone.

        Newton's method starts at the linear predictor ``eta``, shape (N,), and takes at most
        ``steps`` steps: from a mode that is nearly right one is enough.
        """
        H, log_size = self.design(theta), float(theta[2]) if self.outcome.dispersed else 0.0
        # The first step is that of iteratively reweighted least squares: it needs no u.
        score, weight = self.outcome.slopes(self.y, eta, log_size)
        C = self._precision(H, weight)
        right = blas.dgemv(1.0, H, weight * (eta - self.offset) + score, trans=1)
        u = lapack.dpotrs(C, right, lower=1)[0]
        value = self._log_joint(H, log_size, u)
        for _ in range(steps - 1):
            score, weight = self.outcome.slopes(self.y, self.eta(H, u), log_size)
            C = self._precision(H, weight)
            gradient = blas.dgemv(1.0, H, score, trans=1) - u
            step = lapack.dpotrs(C, gradient, lower=1)[0]
            size = 1.0
            if float(gradient @ step) < NEWTON_CLOSE:
                break
            while size > 1e-4:
                new = self._log_joint(H, log_size, u + size * step)
                if new > value:
                    break
                size *= 0.5
            else:
                break
            u, value = u + size * step, new
        return Frame(H, log_size, u, C, -float(np.sum(np.log(np.diag(C)))))

    def _precision(self, H: Floats, weight: Floats) -> Floats:
        """Cholesky factor of I + H' W H."""
        Q = blas.dsyrk(1.0, np.sqrt(weight)[:, None] * H, trans=1, lower=1)
        Q[np.diag_indices_from(Q)] += 1.0
        C, info = lapack.dpotrf(Q, lower=1, clean=1, overwrite_a=1)
        if info != 0:
            raise np.linalg.LinAlgError("the precision of the latent effects is not finite")
        return np.asarray(C)

    def log_mean_joint(self, frame: Frame, z: Floats, base: Floats) -> float:
        """Log of the mean of exp(log joint - base) at columns of z (M, K), base (K,)."""
        u = frame.centre[:, None] + blas.dtrsm(1.0, frame.C, z, lower=1, trans_a=1)
        logs = [self.log_joint(frame, np.ascontiguousarray(u[:, k])) for k in range(base.size)]
        return float(np.logaddexp.reduce(np.array(logs) - base) - np.log(base.size))


def turn(
    model: WhitenedModel,
    frame: Frame,
    z: Floats,
    u: Floats,
    value: float,
    kicks: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, float, float, float, bool]:
    """One Hamiltonian trajectory of z: new z, u and log density; acceptance, energy, divergence.

    The Hamiltonian is that of N(0, I), whose flow is a rotation, plus a residual that is flat
    where Laplace's approximation is exact.
    """
    momentum = rng.standard_normal(z.size)
    angle = rng.uniform(*ANGLE) / kicks
    cos, sin = np.cos(angle), np.sin(angle)
    energy = 0.5 * float(momentum @ momentum) - value

    def residual(z: Floats, u: Floats) -> Floats:
        return frame.pull(model.gradient(frame, u)) + z

    new_z, new_u = z, u
    with np.errstate(all="ignore"):
        push = residual(new_z, new_u)
        for _ in range(kicks):
            momentum = momentum + 0.5 * angle * push
            new_z, momentum = cos * new_z + sin * momentum, cos * momentum - sin * new_z
            new_u = frame.place(new_z)
            push = residual(new_z, new_u)
            momentum = momentum + 0.5 * angle * push
        new_value = value + model.log_joint(frame, new_u) - model.log_joint(frame, u)
        change = 0.5 * float(momentum @ momentum) - new_value - energy
    accept = float(np.exp(min(0.0, -change))) if np.isfinite(change) else 0.0
    wild = not change < WILD
    if rng.random() < accept:
        return new_z, new_u, new_value, accept, energy, wild
    return z, u, value, accept, energy, wild
