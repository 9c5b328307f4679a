"""How a fit draws one copy: the posterior predictive law of its response.

Each kind of model has its own :class:`Predictive`; a fit gives it by ``fit.predictive(effect)``
and ``synthesise`` knows nothing else of the model.
"""

from __future__ import annotations

import copy
from typing import Self

import numpy as np

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import InputError
from dsstan.covariance.base import NO_NOISE, Parameters
from dsstan.covariance.protection import protection_of
from dsstan.models.posterior import latent_model, parameters_at
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

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
    added
        sd of the independent noise added to each value, modelled scale, shape (N,); None but for
        :meth:`with_noise`.
    """

    added: Floats | None = None

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

    def with_noise(self, sd: Floats) -> Self:
        """The same law with independent noise added to each value.

        Raises InputError if the law is not the Gaussian one of a fixed A and an exact covariance:
        the noise would not be counted in what an intruder learns.

        Parameters
        ----------
        sd
            Modelled scale, shape (N,).
        """
        if type(self) is not Predictive:
            raise InputError(
                "noise is added to copies of the Gaussian model of dsstan.fit alone, and this fit "
                "is of another: leave noise out"
            )
        if self.fit.covariance.approximate:
            raise InputError(NO_NOISE)
        other = copy.copy(self)
        other.added = sd
        return other

    @property
    def label(self) -> bytes:
        """What sets these copies apart from others of the same seed."""
        fit = self.fit
        words = f"{fit.problem.formula}\0{fit.kind} {fit.protection} {fit.gamma} {self.effect} "
        own = b"" if self.added is None else self.added.tobytes()
        return words.encode(errors="surrogatepass") + fit.A.tobytes() + own

    def draw(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """One copy of the response on its own scale, not yet rounded, shape (N,).

        ``chain`` and ``iteration`` are the position of the posterior draw, ``rng`` is the copy's
        own stream. Called from threads: nothing of ``self`` may change.
        """
        w = self.effect_at_records(chain, iteration, rng)
        return self.response(self.X, self.carried * w, chain, iteration, rng)

    def process(self, chain: int, iteration: int) -> Parameters:
        """The posterior draw, as the law of the effect at new places takes it."""
        return parameters_at(self.fit, chain, iteration)

    def effect_at_records(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """One draw of w, shape (N,)."""
        return self.model.draw(self.process(chain, iteration), rng)

    def response(
        self, X: Floats, effect: Floats, chain: int, iteration: int, rng: np.random.Generator
    ) -> Floats:
        """Values on the response's own scale, of records or of new places, shape (n,).

        Parameters
        ----------
        X, effect
            Design matrix, shape (n, P), and the spatial effect that is carried, shape (n,).
        """
        p = self.process(chain, iteration)
        variance = p.tau_sq if self.added is None else p.tau_sq + self.added**2
        noise = np.sqrt(variance) * rng.standard_normal(len(X))
        return np.asarray(self.fit.problem.transform.inverse(X @ p.beta + effect + noise))

    @property
    def at_places(self) -> bool:
        """Whether :meth:`response` is the law of this very model, which a subclass must state."""
        return "response" in vars(type(self))

    def inside(self, values: Floats) -> Truths:
        """Whether a rounded value is one that the model allows, shape (N,) or (m, N)."""
        return np.asarray(np.isfinite(self.fit.problem.transform.forward(values)))

    def published(self, values: Floats) -> Floats:
        """The values as the table's column holds them, shape (N,)."""
        return published(self.fit.problem, values)


def carried_effect(fit: Fit, effect: str = "auto") -> tuple[Floats, str]:
    """Factor on w in the copies, shape (N,), and the name of the effect carried."""
    # By the settings alone: the name is published, and must not reveal whether anybody is flagged.
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


def carried_at(A: Floats, flagged: Truths, effect: str) -> Floats:
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
    held = np.asarray(problem.response_column(values), dtype=np.float64)
    outside = ~np.isfinite(problem.transform.forward(held))
    return np.where(outside, 1.0, held)
