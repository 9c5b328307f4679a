"""How a fit draws one copy: the posterior predictive law of its response.

Each kind of model has its own :class:`Predictive`; a fit gives it by ``fit.predictive(effect)``
and ``synthesise`` knows nothing else of the model.
"""

from __future__ import annotations

import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dsstan.core.errors import InputError
from dsstan.covariance.protection import protection_of
from dsstan.models.posterior import latent_model, parameters_at
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

Floats = NDArray[np.float64]

EFFECTS = ("auto", "w", "w*", "plug")


class Predictive:
    """The Gaussian law of a copy, and what other models change in it.

    Section 3.3 of Quick, Holan and Wikle (2018): w given y and one posterior draw, then
    Y = X beta + effect + tau z, taken back through the inverse of the formula's transform.

    Parameters
    ----------
    fit
        The fit whose draws are used.
    effect
        ``"auto"``, ``"w"``, ``"w*"`` or ``"plug"``; see :func:`dsstan.synthesise`.

    Attributes
    ----------
    carried
        Factor on w in the copies, shape (N,).
    effect
        The effect carried, ``"auto"`` resolved.
    X
        Design matrix of the copies, shape (N, P): that of the table, but for
        :meth:`with_design`.
    """

    def __init__(self, fit: Fit, effect: str = "auto") -> None:
        self.fit = fit
        self.X = fit.problem.X
        self.carried, self.effect = carried_effect(fit, effect)
        self.prepare()

    def prepare(self) -> None:
        """What all copies share."""
        self.model = latent_model(self.fit)

    def with_design(self, X: Floats) -> Self:
        """The same law at another design matrix, shape (N, P), as synthetic covariates make it.

        The spatial effect and the coefficients are still those of the real table.
        """
        other = copy.copy(self)
        other.X = X
        return other

    @property
    def label(self) -> bytes:
        """What sets these copies apart from others of the same seed."""
        fit = self.fit
        words = f"{fit.problem.formula}\0{fit.kind} {fit.protection} {fit.gamma} {self.effect} "
        return words.encode(errors="surrogatepass") + fit.A.tobytes()

    def draw(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """One copy of the response on its own scale, not yet rounded, shape (N,).

        Parameters
        ----------
        chain, iteration
            Position of the posterior draw.
        rng
            The copy's own stream. Called from threads: nothing of ``self`` may change.
        """
        problem = self.fit.problem
        p = parameters_at(self.fit, chain, iteration)
        w = self.model.draw(p, rng)
        noise = np.sqrt(p.tau_sq) * rng.standard_normal(problem.n_records)
        return np.asarray(problem.transform.inverse(self.X @ p.beta + self.carried * w + noise))

    def inside(self, values: Floats) -> NDArray[np.bool_]:
        """Whether a rounded value is one that the model allows, shape (N,) or (m, N)."""
        return np.asarray(np.isfinite(self.fit.problem.transform.forward(values)))

    def published(self, values: Floats) -> Floats:
        """The values as the table's column holds them, shape (N,)."""
        return published(self.fit.problem, values)


def carried_effect(fit: Fit, effect: str = "auto") -> tuple[Floats, str]:
    """Factor on w in the copies, shape (N,), and the name of the effect carried."""
    # By the settings alone: the name is published, and must not tell whether anybody is flagged.
    partial = 0.0 < fit.gamma < np.inf or fit.smoothing_moves
    protection = protection_of(fit.protection)
    if effect == "auto":
        effect = "w*" if protection.smoothed_copies and partial else "w"
    if effect == "w*" and protection.variance_returns and partial:
        raise InputError(
            'effect="w*" belongs to protection "paper": under "preserving" it would leave out the '
            "variance that smoothing set apart"
        )
    return carried_at(fit.A, fit.flagged, effect), effect


def carried_at(A: Floats, flagged: NDArray[np.bool_], effect: str) -> Floats:
    """Factor on w in the copies for a diagonal of A, shape (N,)."""
    if effect == "w":
        return np.ones_like(A)
    if effect == "w*":
        # A fully smoothed record has w* = 0; it keeps its conditional-prior draw.
        return np.where(A == 0, 1.0, A)
    return np.where(flagged, 0.0, 1.0)


def published(problem: Problem, values: Floats) -> Floats:
    """The values as the table's column holds them.

    An integer column rounds. Where rounding leaves the domain of the formula's
    transform (a price of 0 under log), the value is 1, the smallest inside it.
    """
    column = problem.with_response(values)[problem.response]
    held = np.asarray(column.to_numpy(dtype=np.float64))
    outside = ~np.isfinite(problem.transform.forward(held))
    return np.where(outside, 1.0, held)
