"""A two-part model: in the heap or not, then the value of those beside it.

Whether a record is in the heap is Bernoulli with a spatial effect
(:func:`dsstan.models.counts.fit.fit_counts`), the values beside it are Gaussian on the scale of the
formula, fitted to the records that have one. A copy draws first who is in the heap, then the
others' values, cut to the range. It is the two-part model of Duan, Manning, Morris and Newhouse
(1983, Journal of Business & Economic Statistics 1, 115-126) with an effect of place in either part.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import InputError, check_count
from dsstan.core.seeds import root_seed, seed_of
from dsstan.core.spelling import spelled
from dsstan.covariance.approximations import Covariance
from dsstan.covariance.protection import protection_of
from dsstan.engines import SamplerSettings
from dsstan.models.arguments import covariance_for, unrestricted_start
from dsstan.models.brackets.result import BracketedFit, BracketedPredictive
from dsstan.models.checks.advice import MOST_TIMES, more_samples
from dsstan.models.checks.verdict import Verdict
from dsstan.models.counts.fit import CountFit, CountPredictive, CountPriors, fit_counts
from dsstan.models.fit import fit
from dsstan.models.heaps.limits import find_range
from dsstan.models.held import only_in_fit
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights
from dsstan.table.formulas.formula import parse
from dsstan.table.problem import Problem

__all__ = ["HeapedFit", "fit_heaped"]

MORE = 3
"""How many times longer the chains of who is in the heap are: 0 and 1 say little of an effect's
variance, and fewer draws of it often fail the verdict."""

HEAP = "heap_"
"""What the parameters of who is in the heap begin with."""


@dataclass(frozen=True, eq=False, repr=False)
class HeapedFit(BracketedFit):
    """A two-part posterior; its own attributes are those of the values beside the heap.

    Attributes
    ----------
    indicator
        The fit of who is in the heap; None where only a range is kept.
    """

    indicator: CountFit | None = field(repr=False, default=None)

    @property
    def outcome(self) -> str:  # type: ignore[override]
        """Law of the response given the spatial effects, as the metadata name it."""
        if self.indicator is None:
            return "Gaussian, copies within one range"
        return "two parts: Bernoulli for who is in the heap, Gaussian beside it"

    @property
    def model_settings(self) -> dict[str, Any]:
        """Heap, range and the fit of who is in the heap, for ``settings.json``."""
        ends = [float(self.brackets.low[0]), float(self.brackets.high[0])]
        own = {"heap": self.problem.heap, "range": [e if np.isfinite(e) else None for e in ends]}
        if self.indicator is None:
            return own
        return own | {
            "heap_model": {
                "seed": str(self.indicator.seed),
                "phi_held": self.indicator.phi_held,
                "priors": vars(self.indicator.priors),
                **self.indicator.model_settings,
            }
        }

    @property
    def public_note(self) -> str:
        """The heap and the range. Nothing in it is estimated."""
        name, low, high = (
            self.problem.response.replace("`", "'"),
            *(float(end[0]) for end in (self.brackets.low, self.brackets.high)),
        )
        said = []
        if self.problem.heap is not None:
            said.append(
                f"`{name}` has a heap at {self.problem.heap:.15g}. Who is in it was drawn in each "
                "copy by a Bernoulli model with a logit link, and the other values by a Gaussian "
                "model of their own: analyse the two parts one at a time, each by the combining "
                "rule."
            )
        if self.brackets.bounded:
            ends = [f"above {low:,.15g}"] if low == self.problem.heap else []
            ends += [f"{low:,.15g} or more"] if np.isfinite(low) and not ends else []
            if np.isfinite(high):
                word = "below" if high == self.problem.heap else "at most"
                ends.append(f"{word} {high:,.15g}")
            beside = "" if self.problem.heap is None else " beside the heap"
            said.append(f"Values of `{name}`{beside} are {' and '.join(ends)} in every copy.")
        return " ".join(said)

    @property
    def scalars(self) -> dict[str, Floats]:
        """Scalar parameters of both parts, each of shape (chains, samples)."""
        own = super().scalars
        if self.indicator is None:
            return own
        more = self.indicator.scalars.items()
        return own | {f"{HEAP}{name}": d[:, ::MORE] for name, d in more}

    @property
    def scalar_terms(self) -> list[str]:
        """What each of ``scalars`` is, in words."""
        more = [] if self.indicator is None else self.indicator.scalar_terms
        return [*super().scalar_terms, *(f"in the heap: {term}" for term in more)]

    @property
    def held(self) -> tuple[str, ...]:
        """Parameters that were held at one value."""
        other = self.indicator is not None and self.indicator.phi_held is not None
        return (*super().held, *((f"{HEAP}phi",) if other else ()))

    def predictive(self, effect: str = "auto") -> HeapedPredictive:
        """Copies: who is in the heap, then the others' values within the range."""
        return HeapedPredictive(self, effect)


class HeapedPredictive(BracketedPredictive):
    """Law of a copy: who is in the heap, and a normal cut to the range for the others.

    The copy of a record in the heap is NaN until it is published, so that no rounding moves it.
    """

    fit: HeapedFit

    def prepare(self) -> None:
        """What all copies share."""
        super().prepare()
        indicator = self.fit.indicator
        self.of_heap: CountPredictive | None = (
            None if indicator is None else indicator.predictive(self.effect)
        )

    @property
    def label(self) -> bytes:
        """That of the values beside the heap, and the heap."""
        return super().label + f"heap {self.fit.problem.heap}".encode()

    def with_design(self, X: Floats) -> Self:
        """The same law at another design matrix, of both parts."""
        other = super().with_design(X)
        if self.of_heap is not None:
            other.of_heap = self.of_heap.with_design(X)
        return other

    def draw(self, chain: int, iteration: int, rng: np.random.Generator) -> Floats:
        """One copy on the response's own scale, NaN in the heap, shape (N,)."""
        values = super().draw(chain, iteration, rng)
        if self.of_heap is None:
            return values
        heaped = self.of_heap.draw(chain, MORE * iteration, rng) == 1.0
        return np.where(heaped, np.nan, values)

    def inside(self, values: Floats) -> Truths:
        """Whether a rounded value is in the heap or in the range."""
        return np.asarray(np.isnan(values) | super().inside(values))

    def published(self, values: Floats) -> Floats:
        """The values as the table's column holds them."""
        problem, heaped = self.fit.problem, np.isnan(values)
        some = problem.original()[problem.observed][0]
        held = super().published(np.where(heaped, some, values))
        return np.where(heaped, np.nan if problem.heap is None else problem.heap, held)


def fit_heaped(
    problem: Problem,
    range: Any = None,
    *,
    weights: Weights | None = None,
    gamma: float | None = None,
    protection: str | None = None,
    start: HeapedFit | None = None,
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
) -> HeapedFit:
    """Fit a response with a heap, or one whose copies keep to a range.

    Both parts have the formula's covariates and a spatial effect each. Under a flagging rule the
    neighbours that count are those beside the heap, so more records are flagged than by all.

    Parameters
    ----------
    problem
        From :func:`dsstan.prepare` with ``heap``; without, ``range`` is needed.
    range
        Least and largest value beside the heap, ``(0, None)``; see
        :func:`dsstan.models.heaps.limits.find_range`.
    protection
        ``"paper"`` with a heap, as of counts; without, as of :func:`dsstan.fit`.
    start
        The unrestricted fit of the same problem and range.
    phi, nodes, warmup
        Of the values beside the heap.
    priors
        Of the values beside the heap; its range of the decay is that of the heap as well.
    covariance
        ``"exact"``, which is also ``"auto"``.
    weights, gamma, cov_model, engine, chains, samples, adapt_delta, max_treedepth, seed, progress
        As of :func:`dsstan.fit`.

    Returns
    -------
    HeapedFit
        Whether or not it converged: its ``verdict`` is that of both parts.

    Raises
    ------
    InputError
        If there is neither a heap nor a range, the range does not fit the table, or arguments
        contradict each other.
    SurfaceError, EngineError
        As of :func:`dsstan.fit`.
    """
    only_in_fit(problem)
    kept = find_range(problem, range)
    if problem.heap is None and range is None:
        raise InputError(
            "give a heap to prepare(), such as heap=0, or a range of the copies, such as "
            "range=(0, None); else use dsstan.fit"
        )
    check_heap_protection(problem.heap, protection)
    _check_start(start, problem, (float(kept.first[0]), float(kept.last[0])))
    exact = covariance_for(covariance, start, problem.n_records, exact_only="fit_heaped")
    root = root_seed(seed)
    seeds = list(map(seed_of, np.random.SeedSequence(root).spawn(2)))
    common: dict[str, Any] = {
        **{"weights": weights, "gamma": gamma, "cov_model": cov_model, "covariance": exact},
        **{"chains": chains, "progress": progress},
    }
    indicator = None
    if problem.heap is not None:
        before = None if start is None else start.indicator
        indicator = fit_counts(
            _who(problem) if before is None else before.problem,
            "bernoulli",
            start=before,
            priors=CountPriors.beside(priors),
            seed=seeds[1],
            samples=MORE * check_count("samples", samples),
            **common,
        )
    own = start.gaussian if start is not None else None
    found = fit(
        replace(problem, heap=None) if own is None else own.problem,
        start=own,
        protection=protection,
        phi=phi,
        priors=priors,
        engine=engine,
        warmup=warmup,
        adapt_delta=adapt_delta,
        max_treedepth=max_treedepth,
        nodes=nodes,
        samples=samples,
        seed=seeds[0],
        **common,
    )
    parts = (found,) if indicator is None else (found, indicator)
    both: dict[str, Any] = {each.name: getattr(found, each.name) for each in fields(Fit)}
    both |= {
        "problem": problem,
        "seed": root,
        "seconds": sum(part.seconds for part in parts),
        "verdict": _verdict(parts, found.settings),
        "notes": tuple(dict.fromkeys(note for part in parts for note in part.notes)),
        "start": unrestricted_start(start),
    }
    return HeapedFit(**both, brackets=kept, gaussian=found, indicator=indicator)


def check_heap_protection(heap: Any, protection: str | None) -> None:
    """Refuse a protection that the model of who is in a heap does not have."""
    if heap is not None and protection is not None and not protection_of(protection).latent:
        raise InputError(
            f"who is in a heap is protected as {spelled('protection', 'paper')} does, got "
            f"{protection!r}"
        )


def _check_start(start: Fit | None, problem: Problem, ends: tuple[float, float]) -> None:
    """Refuse a start that is not of the same model."""
    if start is None:
        return
    if not isinstance(start, HeapedFit) or start.problem is not problem:
        raise InputError("start must be a fit of fit_heaped, of the same problem")
    if (float(start.brackets.first[0]), float(start.brackets.last[0])) != ends:
        raise InputError("start has another range: give both fits the same")


def _who(problem: Problem) -> Problem:
    """The problem of who is in the heap: the same places and covariates, 1 for who is."""
    name = f"{problem.response} in the heap"
    while name in problem.table.columns:
        name += "_"
    y = problem.in_heap.astype(np.float64)
    y.setflags(write=False)
    return replace(
        problem,
        table=problem.table.assign(**{name: problem.in_heap}),
        formula=f"{name} ~ {problem.design.formula.rhs}",
        response=name,
        transform=parse("y ~ 1").transform,
        design=replace(problem.design, y=y),
        y=y,
        heap=None,
    )


def _verdict(parts: tuple[Fit, ...], asked: SamplerSettings) -> Verdict:
    """The verdict on all parts, each check said once, with advice on the samples asked for."""
    first, *others = (part.verdict.checks for part in parts)
    ran, factors = replace(asked, samples=MORE * asked.samples), range(2, MOST_TIMES + 1)
    longer = {more_samples(ran, times): more_samples(asked, times) for times in factors}
    more = [
        replace(
            check,
            name=f"{check.name}, who is in the heap",
            advice=longer.get(check.advice, check.advice),
        )
        for checks in others
        for check in checks
        if check not in first
    ]
    return Verdict((*first, *more))
