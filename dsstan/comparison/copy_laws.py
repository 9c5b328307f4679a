"""The laws of a setting's copies: what they reveal and what they cost an analyst, in closed form.

A copy is normal given y and a draw of the variances, with mean H y and covariance Vs. Everything
here follows from H and Vs at a few draws, so that settings are compared without drawing copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from dsstan.core.arrays import Floats
from dsstan.covariance.base import Parameters, SpatialModel
from dsstan.covariance.copy_law import copy_law
from dsstan.covariance.latent import LatentModel
from dsstan.table.problem import Problem

__all__ = ["Analyst", "Cost", "CopyLaws"]


@dataclass(frozen=True, eq=False)
class CopyLaws:
    """Laws of a copy at D draws.

    Attributes
    ----------
    H
        dE[copy]/dy, shape (D, N, N).
    Vs
        Covariance of a copy given y without added noise, shape (D, N, N).
    """

    H: Floats = field(repr=False)
    Vs: Floats = field(repr=False)

    @classmethod
    def at(cls, model: SpatialModel, points: Sequence[Parameters], carried: Floats) -> CopyLaws:
        """At some draws of a model under the exact covariance."""
        latent = LatentModel(model)
        laws = [copy_law(latent, p, carried) for p in points]
        return cls(np.stack([law.H for law in laws]), np.stack([law.Vs for law in laws]))

    def some(self, count: int) -> CopyLaws:
        """So many of the draws, evenly spread, or all where there are no more."""
        step = max(1, len(self.H) // count)
        return CopyLaws(self.H[::step][:count], self.Vs[::step][:count])

    def solved(self, variance: Floats) -> Floats:
        """``(Vs + diag s)^-1 H`` at each draw, shape (D, N, N), s the noise's variances (N,)."""
        out = np.empty_like(self.H)
        for H, Vs, into in zip(self.H, self.Vs, out, strict=True):
            noisy = Vs.copy()
            noisy[np.diag_indices_from(noisy)] += variance
            factor = cho_factor(noisy, lower=True, overwrite_a=True, check_finite=False)
            into[:] = cho_solve(factor, H, check_finite=False)
        return out

    def information(self, solved: Floats) -> Floats:
        """Information of one copy on each y_i, mean over the draws, shape (N,)."""
        return np.asarray(np.einsum("dij,dij->j", self.H, solved) / len(self.H))

    def slope(self, solved: Floats, multiplier: Floats) -> Floats:
        """Gradient by s of a weighted sum of the information, shape (N,).

        ``h' (Vs + diag s)^-1 h`` falls with s_k by the square of entry k of
        ``(Vs + diag s)^-1 h``.
        """
        return np.asarray(-((solved**2) @ multiplier).mean(axis=0))


@dataclass(frozen=True)
class Cost:
    """What a setting costs the analyst; 0 is nothing.

    Attributes
    ----------
    regression
        Mean squared error of the formula's least-squares coefficients from the copies, by the rule
        of Reiter (2003) and with the shift that smoothing causes, over their variance in the
        original, less 1; a mean over the coefficients.
    copies
        Mean squared distance of a copy's value from the real one, beyond that of an unprotected
        copy, as a share of the residual variance of the column.
    """

    regression: float
    copies: float

    @property
    def total(self) -> float:
        """Their sum, by which settings are ordered."""
        return self.regression + self.copies

    def __str__(self) -> str:
        return (
            f"the regression's mean squared error is {_change(self.regression)} than the variance "
            f"in the original, and a copy lies {100 * max(self.copies, 0.0):.2g}% of the residual "
            "variance farther from the real values than an unprotected one"
        )


def _change(share: float) -> str:
    return f"{100 * abs(share):.2g}% {'larger' if share >= 0 else 'smaller'}"


class Analyst:
    """The analyst's least-squares regression of a problem's formula.

    Parameters
    ----------
    problem
        The prepared table.
    unprotected
        Laws of copies without protection, to compare with.
    """

    def __init__(self, problem: Problem, unprotected: CopyLaws) -> None:
        X, self.y = problem.X, problem.y
        n, p = X.shape
        self.inverse = np.linalg.inv(X.T @ X)
        self.M = X @ self.inverse
        self.rest = np.eye(n) - self.M @ X.T
        self.degrees = n - p
        self.residual = float(self.y @ self.rest @ self.y) / self.degrees
        self.own = self.residual * np.diag(self.inverse)
        self.bare = self._distance(unprotected)

    def _distance(self, laws: CopyLaws) -> float:
        """Mean squared distance of a copy's value from the real one."""
        gap = laws.H @ self.y - self.y
        return float(np.mean(gap**2) + np.einsum("dii->", laws.Vs) / gap.size)

    def cost(self, laws: CopyLaws, copies: int, variance: Floats) -> Cost:
        """Of L copies with added noise of these variances, shape (N,)."""
        means = laws.H @ self.y
        q = means @ self.M
        Vs = laws.Vs.mean(axis=0) + np.diag(variance)
        spread = np.atleast_2d(np.cov(q.T)) if len(q) > 1 else np.zeros((q.shape[1],) * 2)
        between = np.diag(self.M.T @ Vs @ self.M + spread)
        squares = np.einsum("di,ij,dj->", means, self.rest, means) / len(means)
        within = (squares + np.sum(self.rest * Vs)) / self.degrees * np.diag(self.inverse)
        shift = q.mean(axis=0) - self.y @ self.M
        error = within + between / copies + shift**2
        apart = self._distance(laws) + variance.mean() - self.bare
        return Cost(float(np.mean(error / self.own)) - 1.0, float(apart / self.residual))

    def price(self, copies: int) -> Floats:
        """By how much the cost rises with the variance of each record's noise, shape (N,)."""
        within = np.diag(self.rest) / (self.degrees * self.residual)
        between = np.mean(self.M**2 / self.own, axis=1) / copies
        return np.asarray(within + between + 1.0 / (self.y.size * self.residual))
