"""Keep each record's bracket in the copies (section 6, equation trun, of the paper)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from scipy.linalg import pinvh
from scipy.spatial.distance import cdist

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import DsstanWarning, InputError
from dsstan.covariance.approximations import Covariance
from dsstan.covariance.base import Parameters
from dsstan.covariance.correlation import correlation
from dsstan.covariance.latent import LatentModel
from dsstan.covariance.protection import PROTECTIONS, protection_of
from dsstan.engines import SamplerSettings
from dsstan.models.arguments import check_arguments, covariance_for, unrestricted_start
from dsstan.models.brackets.limits import Brackets, find_brackets
from dsstan.models.brackets.truncated import fit_truncated
from dsstan.models.brackets.truncation import truncated_normal
from dsstan.models.finish import finish_fit
from dsstan.models.fit import fit
from dsstan.models.held import only_in_fit
from dsstan.models.posterior import parameters_at
from dsstan.models.predictive import Predictive
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem, require_complete

__all__ = ["LIKELIHOODS", "BracketedFit", "TruncatedFit", "fit_bracketed"]


LIKELIHOODS = ("plain", "truncated")
"""Likelihoods by name, the default first."""

TRUNCATED_PROTECTIONS = tuple(name for name in PROTECTIONS if protection_of(name).smoothed_copies)
"""Protections of the truncated likelihood: A on the effect, and nothing else."""


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
        assert self.fit.gaussian is not None
        self.model = LatentModel(self.fit.gaussian)

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
        """Mean and variance of w of the lone records given w of all others, each (lone,)."""
        problem = self.fit.problem
        own = problem.site_index[self.lone]
        first = np.unique(problem.site_index, return_index=True)[1]
        rest = np.setdiff1d(np.arange(problem.n_sites), own)
        R = correlation(
            cdist(problem.unique_sites, problem.unique_sites), p.phi, self.fit.cov_model
        )
        gain = R[np.ix_(own, rest)] @ pinvh(R[np.ix_(rest, rest)])
        m = gain @ w[first[rest]]
        v = p.sigma_sq * (1.0 - np.sum(gain * R[np.ix_(own, rest)], axis=1))
        return m, np.maximum(v, 0.0)

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

    def prepare(self) -> None:
        """Nothing: the draws hold w."""

    def effect_at(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """The spatial effect of one draw at all records, shape (N,)."""
        return np.asarray(self.fit.draws["w"][chain, iteration][self.fit.problem.site_index])


def bracketed(fit: Fit, what: str) -> BracketedFit:
    """The fit, if its copies keep brackets.

    Raises
    ------
    InputError
        If they do not; ``what`` is the function that needs it.
    """
    if not isinstance(fit, BracketedFit) or fit.problem.heap is not None:
        raise InputError(f"{what} needs copies of a fit_bracketed fit")
    return fit


def fit_bracketed(
    problem: Problem,
    cuts: Any,
    *,
    column: str | None = None,
    closed: str = "left",
    likelihood: str = "plain",
    weights: Weights | None = None,
    gamma: float | None = None,
    protection: str | None = None,
    start: BracketedFit | None = None,
    phi: float | None = None,
    cov_model: str | None = None,
    covariance: str | Covariance | None = None,
    priors: Priors | None = None,
    engine: str = "auto",
    chains: int = SamplerSettings.chains,
    warmup: int = SamplerSettings.warmup,
    samples: int = SamplerSettings.samples,
    adapt_delta: float = SamplerSettings.adapt_delta,
    max_treedepth: int = SamplerSettings.max_treedepth,
    nodes: tuple[int, int] | None = None,
    seed: int | None = None,
    progress: bool | None = None,
) -> BracketedFit:
    """Fit a model whose copies keep each record's bracket.

    Equation trun of Quick, Holan and Wikle (2018, section 6).

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare`.
    cuts
        Cut points on the response's own scale, or brackets by name; see
        :func:`dsstan.models.brackets.limits.find_brackets`. They are published.
    column
        With named brackets: the column that names each record's.
    closed
        Which end belongs to a bracket, ``"left"`` (the default) or ``"right"``.
    likelihood
        ``"plain"``, the default: the Gaussian fit, and only the copies are cut.
        ``"truncated"``: each record's bracket is taken as given, with the normalising constant
        of its normal; it learns little of the variances, and takes longer.
    weights, gamma, start, phi
        As of :func:`dsstan.fit`: without weights the fit is unrestricted; with them phi is held,
        at ``phi`` or at the posterior median of ``start``, an unrestricted fit with the same
        brackets. An unrestricted fit of the truncated likelihood takes ``start`` (of either
        likelihood) or ``phi`` too and then holds phi; with neither phi is free, which needs a
        Cholesky factor a gradient.
    protection
        As of :func:`dsstan.fit`. The truncated likelihood knows ``"paper"`` only.
    covariance
        ``"exact"``, which is also ``"auto"``: copies within brackets have no approximation.
    nodes
        As of :func:`dsstan.fit`; the truncated likelihood has none.
    cov_model, priors, engine, chains, warmup, samples, adapt_delta, max_treedepth, seed, progress
        As of :func:`dsstan.fit`.

    Returns
    -------
    BracketedFit
        A :class:`TruncatedFit` under ``"truncated"``. Whether or not it converged: its
        ``verdict`` says.

    Raises
    ------
    InputError
        If brackets do not fit the table, or arguments contradict each other.
    SurfaceError, EngineError
        As of :func:`dsstan.fit`.

    Warns
    -----
    DsstanWarning
        If the column can hold one value only in a record's bracket: its copies are the truth.
    """
    require_complete(problem)
    only_in_fit(problem)
    kept = find_brackets(problem, cuts, column=column, closed=closed)
    if likelihood not in LIKELIHOODS:
        raise InputError(f"likelihood must be one of {', '.join(LIKELIHOODS)}, got {likelihood!r}")
    _check_start(start, problem, kept, weights, likelihood)
    if nodes is not None and likelihood != "plain":
        raise InputError('nodes belong to likelihood="plain", which has a surface: leave them out')
    notes = _notes(kept)
    for note in notes:
        warnings.warn(note, DsstanWarning, stacklevel=2)
    common: dict[str, Any] = {
        **{"weights": weights, "gamma": gamma, "protection": protection, "phi": phi},
        **{"cov_model": cov_model, "priors": priors, "seed": seed, "progress": progress},
    }
    sampler = SamplerSettings(chains, warmup, samples, adapt_delta, max_treedepth)
    if likelihood == "plain":
        exact = covariance_for(covariance, start, problem.n_records, exact_only="fit_bracketed")
        found = fit(
            problem,
            covariance=exact,
            nodes=nodes,
            engine=engine,
            start=None if start is None else start.gaussian,
            **common,
            **{name: value for name, value in vars(sampler).items() if name != "metric"},
        )
        own = {each.name: getattr(found, each.name) for each in fields(Fit)}
        own |= {"start": unrestricted_start(start), "notes": (*found.notes, *notes)}
        return BracketedFit(**own, brackets=kept, gaussian=found)
    if protection not in (None, *TRUNCATED_PROTECTIONS):
        raise InputError(
            f'the truncated likelihood has protection "paper" only, got {protection!r}; '
            'likelihood="plain" has them all'
        )
    request = check_arguments(
        problem,
        settings=replace(sampler, metric="diag_e"),
        start=start,
        covariance=covariance,
        alone=("start", "phi", "protection"),
        outcome=None,
        exact_only="fit_bracketed",
        **common,
    )
    run = fit_truncated(request, kept, engine=engine)
    return finish_fit(TruncatedFit, request, run, notes=notes, brackets=kept)


def _check_start(
    start: BracketedFit | None,
    problem: Problem,
    kept: Brackets,
    weights: Weights | None,
    likelihood: str,
) -> None:
    """Refuse a start that is not of the same model."""
    if start is None:
        return
    if not isinstance(start, BracketedFit):
        raise InputError("start must be a fit of fit_bracketed, with the same brackets")
    if start.problem is not problem:
        raise InputError("start is a fit of another problem; fit both to the same one")
    other = start.brackets
    same = other.low.shape == kept.low.shape and other.closed == kept.closed
    if not (same and np.array_equal(other.low, kept.low) and np.array_equal(other.high, kept.high)):
        raise InputError("start has other brackets: give both fits the same")
    if weights is None and likelihood == "plain":
        raise InputError("start belongs to a restricted fit: give weights as well")
    if weights is not None and start.likelihood != likelihood:
        raise InputError(
            f'start has the likelihood "{start.likelihood}": give both fits the same one'
        )


def _notes(kept: Brackets) -> tuple[str, ...]:
    """What the user should know of the brackets."""
    alone, found = int(kept.single.sum()), []
    if len(kept.low) > 1 and np.count_nonzero(kept.counts) == 1:
        found.append(
            "all records are in one bracket, so brackets keep nothing apart: cuts are on the "
            "response's own scale, before any log"
        )
    if alone:
        found.append(
            f"the copies of {alone} record{'' if alone == 1 else 's'} are equal to the truth: the "
            "column, as it is rounded, holds one value in their bracket. Give wider brackets"
        )
    return tuple(found)


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
