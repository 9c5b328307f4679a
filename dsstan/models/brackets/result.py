"""Fits of values known to a bracket, and the law of their copies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, ClassVar, cast

import numpy as np
from scipy.linalg import pinvh
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.covariance.base import Parameters
from dsstan.covariance.correlation import correlation, correlation_code
from dsstan.covariance.vecchia.kriging import around_places
from dsstan.models.brackets.limits import Brackets
from dsstan.models.brackets.truncation import truncated_normal
from dsstan.models.posterior import latent_model, parameters_at
from dsstan.models.predictive import Predictive
from dsstan.models.result import Fit


@dataclass(frozen=True, eq=False, repr=False)
class BracketedFit(Fit):
    """The Gaussian fit, with copies that stay in their record's bracket.

    Attributes
    ----------
    brackets
        The brackets, and which record is in which.
    gaussian
        The fit without brackets, whose posterior this is; None for the likelihood
        ``"truncated"``.
    """

    brackets: Brackets = field(repr=False, default=cast("Brackets", None))
    gaussian: Fit | None = field(repr=False, default=None)

    likelihood: ClassVar[str] = "plain"
    outcome: ClassVar[str] = "Gaussian, copies within the bracket of each record"

    @property
    def model_settings(self) -> dict[str, Any]:
        """Likelihood and brackets, for ``settings.json``."""
        kept = self.brackets
        ends = {
            name: [None if np.isinf(end) else float(end) for end in pair]
            for name, *pair in zip(kept.names, kept.low, kept.high, strict=True)
        }
        return {
            "likelihood": self.likelihood,
            "brackets": ends,
            "closed": kept.closed,
            "bracket_column": kept.column,
            "cov_model": self.cov_model,
        }

    @property
    def public_note(self) -> str:
        """The brackets, and what they reveal of each record. Nothing in it is estimated."""
        if not self.brackets.bounded:
            return ""
        response = self.problem.response.replace("`", "'")
        kept = self.brackets
        rows = zip(kept.words(), kept.low, kept.high, strict=True)
        lines = [f"- {word}{_guess(*ends)}" for word, *ends in rows]
        named = f" Column `{kept.column.replace('`', chr(39))}` names them." if kept.column else ""
        return (
            f"## Brackets\n\nThe bracket of each record is true: its `{response}` is in the same "
            f"bracket in every\ncopy as in the original, and the number of records in each bracket "
            f"is that of the\noriginal.{named} So whoever finds a record learns its bracket for "
            "certain, and with\nthat the value itself up to the ends:\n\n" + "\n".join(lines)
        )

    @property
    def other_columns(self) -> tuple[str, ...]:
        """The column that names brackets, where there is one."""
        return () if self.brackets.column is None else (self.brackets.column,)

    @property
    def without_brackets(self) -> BracketedFit:
        """The same posterior, with copies that keep no bracket."""
        return replace(self, brackets=self.brackets.without())

    def predictive(self, effect: str = "auto") -> Predictive:
        """Copies: w given y, then a normal cut to the bracket given w."""
        return BracketedPredictive(self, effect)


@dataclass(frozen=True, eq=False)
class TruncatedFit(BracketedFit):
    """A fit of the truncated likelihood; ``draws`` hold ``w`` by site as well."""

    likelihood: ClassVar[str] = "truncated"
    outcome: ClassVar[str] = "Gaussian truncated to the bracket of each record"

    def predictive(self, effect: str = "auto") -> Predictive:
        """Copies: a normal cut to the bracket given the draw of w."""
        return TruncatedPredictive(self, effect)


class BracketedPredictive(Predictive):
    """Law of a copy of a bracketed fit: given w, a normal cut to the record's bracket.

    w is drawn given y, not given y and the copy's bracket: the bracket is a function of y, so
    that y has said it already. Then w, the brackets and the copy have together the law of
    w, the brackets and y.

    Of a fully smoothed record (A_ii = 0) y says nothing: its w is a draw from the conditional
    prior given the others, which may lie far outside, and a normal cut about it would pile up at
    the bracket's end. Its copy is drawn from the law with that w integrated out,
    N(x_i beta + m_i, v_i + tau_sq) cut to the bracket, each such record by itself.
    """

    fit: BracketedFit

    def prepare(self) -> None:
        """The law of w given y."""
        self.given_others = lru_cache(maxsize=1)(self._given_others)  # phi is held where A is 0
        if self.fit.gaussian is not None:
            self.model = latent_model(self.fit.gaussian)

    @property
    def label(self) -> bytes:
        """That of the Gaussian copies, and the brackets where there are any."""
        kept = self.fit.brackets
        if not kept.bounded:
            return super().label
        ends = np.concatenate([kept.first, kept.last]).tobytes()
        return super().label + self.fit.likelihood.encode() + ends

    @cached_property
    def lone(self) -> Truths:
        """Records that carry w of which no value informs it, fully smoothed or without one, at
        sites where none does, (N,)."""
        site = self.fit.problem.site_index
        silent = (self.fit.A == 0.0) | ~self.fit.problem.observed
        informed = np.bincount(site, weights=~silent) > 0
        return np.asarray(silent & (self.carried == 1.0) & ~informed[site])

    def prior_given_others(self, p: Parameters, w: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of w of the lone records given w of all others, each (lone,).

        Under Vecchia's approximation given the nearest of them.
        """
        near, weights, left = self.given_others(p.phi)
        return (weights * w[near]).sum(axis=1), p.sigma_sq * np.maximum(left, 0.0)

    def _given_others(self, phi: float) -> tuple[Indices, Floats, Floats]:
        """Records that stand for other sites, their weights, and the variances left, of 1."""
        problem, fit = self.fit.problem, self.fit
        own = problem.site_index[self.lone]
        first = np.unique(problem.site_index, return_index=True)[1]
        rest = np.setdiff1d(np.arange(problem.n_sites), own)
        sites, others = problem.unique_sites[own], problem.unique_sites[rest]
        if fit.covariance.approximate:
            code = correlation_code(fit.cov_model)
            near, weights, left = around_places(sites, others, phi=phi, r=0.0, code=code)
            return first[rest][near], weights, left
        R = correlation(cdist(others, others), phi, fit.cov_model)
        cross = correlation(cdist(sites, others), phi, fit.cov_model)
        weights = cross @ pinvh(R)
        near = np.broadcast_to(first[rest], weights.shape)
        return near, weights, 1.0 - np.sum(weights * cross, axis=1)

    def effect_at(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """The spatial effect of one draw at all records, shape (N,)."""
        return self.model.draw(parameters_at(self.fit, chain, iteration), rng)

    def draw(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """One copy on the response's own scale; see
        :meth:`dsstan.models.predictive.Predictive.draw`."""
        problem, kept = self.fit.problem, self.fit.brackets
        p = parameters_at(self.fit, chain, iteration)
        w = self.effect_at(chain, iteration, rng)
        effect, spread = self.carried * w, np.full(problem.n_records, np.sqrt(p.tau_sq))
        lone = self.lone
        if lone.any() and kept.bounded:
            m, v = self.prior_given_others(p, w)
            effect[lone], spread[lone] = m, np.sqrt(v + p.tau_sq)
        z = rng.standard_normal(problem.n_records)
        mean = self.X @ p.beta + effect
        cut = truncated_normal(z, mean, spread, kept.low_modelled, kept.high_modelled)
        drawn = np.asarray(problem.transform.inverse(cut))
        # Next to an end the column may hold nothing: the nearest value inside is the draw then.
        return kept.clip(drawn) if kept.bounded else drawn

    def inside(self, values: Floats) -> Truths:
        """Whether a rounded value is in its record's bracket and the transform takes it."""
        return super().inside(values) & self.fit.brackets.inside(values)

    def published(self, values: Floats) -> Floats:
        """The values as the table's column holds them, in their bracket."""
        return super().published(self.fit.brackets.clip(values))


class TruncatedPredictive(BracketedPredictive):
    """The same with the draws of w that the sampler made."""

    def effect_at(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """The spatial effect of one draw at all records, shape (N,)."""
        return np.asarray(self.fit.draws["w"][chain, iteration][self.fit.problem.site_index])


def _guess(low: float, high: float) -> str:
    """How far off one guess for a whole bracket can be."""
    if not (np.isfinite(low) and np.isfinite(high)):
        return ""
    text = f", {high - low:,.15g} wide"
    if low <= 0:
        return text
    # The guess 2 low high / (low + high) is off by the same share of the truth at both ends.
    share = 100 * (high - low) / (high + low)
    return f"{text}: one guess for all of them is off by at most {share:.2g}% of the value"
