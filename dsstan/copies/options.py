"""The options of a release, each stated once: type, default, check and meaning.

:func:`dsstan.protect` takes them as keywords. The command line and job files take those that have
an :class:`dsstan.copies.option_fields.Option`: it says what a person reads about them and how they
are typed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np

from dsstan.copies.option_fields import COPIES, MODEL, PROTECT, SAMPLER, option, options_of
from dsstan.core.errors import InputError, check_count, is_number
from dsstan.core.seeds import root_seed
from dsstan.core.spelling import spelled
from dsstan.covariance.approximations import COVARIANCES, Covariance, choose_covariance
from dsstan.covariance.correlation import CORRELATIONS
from dsstan.covariance.protection import PROTECTIONS
from dsstan.engines import ENGINES, SamplerSettings
from dsstan.models.counts.priors import CountPriors
from dsstan.models.flagging.flags import isolated_records
from dsstan.models.heaps.fit import check_heap_protection
from dsstan.models.heaps.limits import range_ends
from dsstan.models.held import check_ties
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, own_weights, smoothing
from dsstan.table.parquet import prepare_parquet
from dsstan.table.places.coordinates import DISTANCES
from dsstan.table.prepare import MISSING, prepare
from dsstan.table.problem import Problem
from dsstan.table.records.heaps import HeapLike, heap_value
from dsstan.table.records.households import SITE
from dsstan.table.rounding import ROUNDINGS

SEARCH = "auto"
"""The protection of a release that is searched for; see :func:`dsstan.protect_to`."""


@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """Every option of a release but its table and formula; :func:`dsstan.protect` explains them.

    Raises
    ------
    InputError
        If one is out of range, or two contradict each other.
    """

    coords: tuple[str, str] | None = option(
        None,
        "The two coordinate columns, x or longitude first, with a space; not needed where TABLE "
        "has geometry.",
        MODEL,
        metavar="X Y",
    )
    distance: str | None = option(
        None, "planar, degrees or projected; a must for longitudes.", MODEL, choices=DISTANCES
    )
    crs: Any = option(None, "Coordinate reference system, e.g. EPSG:4326.", MODEL, typed=str | None)
    name: str | None = None
    copies: int = option(20, "L, the number of copies.", COPIES)
    threshold: float | None = option(
        None, "M: flag records with no neighbour nearer than this distance.", PROTECT
    )
    correlation: float | None = option(
        None, "c: flag where the neighbour's correlation is at most this (0.20).", PROTECT
    )
    neighbour: int = option(1, "Look at the k-th nearest neighbour.", PROTECT)
    by_site: bool = option(
        False, "Count places instead of records as neighbours: one address is one.", PROTECT
    )
    weights: str | None = option(
        None,
        "Column with the risk weight of each record, from 0 to 1, in place of a rule; it is not "
        "published.",
        PROTECT,
        metavar="COLUMN",
    )
    gamma: float = option(np.inf, "Global risk parameter, 0 to inf.", PROTECT)
    protection: str = option(
        "paper",
        f"{', '.join(PROTECTIONS)}; {SEARCH}: the least damaging of copies, flags, protection and "
        "noise that keeps the floor.",
        PROTECT,
        choices=(*PROTECTIONS, SEARCH),
    )
    cov_model: str = option(
        *("exponential", f"Correlation function: {', '.join(CORRELATIONS)}.", MODEL, CORRELATIONS)
    )
    covariance: str | Covariance = option(
        "auto",
        f"Covariance: {', '.join(COVARIANCES)}. auto is exact up to 2000 records, then Vecchia's "
        "approximation.",
        *(MODEL, COVARIANCES, str),
    )
    priors: Priors | None = None
    engine: str = option(
        "auto", "auto, cmdstan, embedded or direct.", SAMPLER, choices=("auto", *ENGINES)
    )
    seed: int | None = option(
        None, "Root seed; a fresh one of 128 bits if left out.", SAMPLER, repr=False
    )
    workers: int = 1
    accept_failed: bool = option(False, "Go on although a fit failed its verdict.", SAMPLER)
    strict: bool = option(False, "Stop at a verdict's warnings too.", SAMPLER)
    rounding: str = option(
        *("auto", "auto: round the copies like the input; none: all digits.", COPIES, ROUNDINGS)
    )
    missing: str = option(
        "refuse", "A response that is missing: refuse, or draw it with the model.", MODEL, MISSING
    )
    heap: HeapLike | None = option(
        None,
        "Value that many records share and that gets a law of its own: a number such as 0, cap or "
        "floor.",
        MODEL,
        typed=str | None,
        free_form=True,
    )
    range: tuple[float | None, float | None] | None = option(
        None,
        "Least and largest value that copies may have, beside the heap if there is one; inf or "
        "-inf where open.",
        MODEL,
        typed=tuple[float, float] | None,
        metavar="LOW HIGH",
    )
    accept_proxy: list[str] | None = option(
        None, "Column that may go out although it predicts the response; once for each.", COPIES
    )
    imputations: int | None = option(
        None, "M, how often a missing response is drawn (5); L / M copies of each.", COPIES
    )
    hide_gaps: bool = option(
        *(False, "Draw every record, so that the copies don't show which response was missing."),
        COPIES,
    )
    by_row_groups: bool = option(
        False,
        "TABLE is Parquet, a file or a folder, larger than memory: read only the needed "
        "columns, a row group at a time.",
        MODEL,
    )
    publish: Sequence[str] | None = option(
        None,
        "Columns to publish as they are, beside those of the formula and the coordinates; no "
        "other column goes out.",
        COPIES,
        typed=list[str] | None,
        metavar="COLUMN",
    )
    survey_weights: str | None = option(
        None,
        "Column with survey weights: how many members of the population each record stands for. "
        "It is published as it is; the model uses it if the formula does.",
        MODEL,
        metavar="COLUMN",
    )
    time: str | None = option(
        None,
        "Column of the time of a record, numbers or dates, where places have several: the "
        "correlation falls with it. It is published.",
        MODEL,
        metavar="COLUMN",
    )
    household: str | None = option(
        None,
        "Column that numbers the households, where rows are persons: each household is one record "
        f'of the release. "{SITE}" takes the rows of a place for one.',
        MODEL,
        metavar="COLUMN",
    )
    time_decay: float | None = option(
        None, "Decay in time to hold; by default the most likely one.", MODEL
    )
    group_share: float | None = option(
        None, "Share of sigma_sq of (1 | group) to hold; by default the most likely one.", MODEL
    )
    progress: bool | None = None
    chains: int = option(SamplerSettings.chains, "Chains of the sampler.", SAMPLER)
    warmup: int | None = option(
        None, f"Warm-up iterations a chain ({SamplerSettings.warmup}; counts take fewer).", SAMPLER
    )
    samples: int | None = option(
        None, f"Kept iterations a chain ({SamplerSettings.samples}).", SAMPLER
    )
    adapt_delta: float = option(
        SamplerSettings.adapt_delta, "Acceptance the sampler aims at.", SAMPLER
    )
    max_treedepth: int = SamplerSettings.max_treedepth
    nodes: tuple[int, int] | None = None
    program: str | None = None
    hold_phi: bool | None = None
    cluster: Any = None
    resume: Any = None

    def __post_init__(self) -> None:
        if self.threshold is not None and self.correlation is not None:
            raise InputError("give threshold or correlation, not both")
        M, c = self.threshold, self.correlation
        if M is not None and not (is_number(M) and np.isfinite(M) and M > 0):
            raise InputError("threshold must be positive and finite")
        if c is not None and not (is_number(c) and 0 < c < 1):
            raise InputError("correlation must lie between 0 and 1")
        self._check_weights()
        self._check_heap()
        if self.household is not None and self.by_row_groups:
            raise InputError(
                f"{spelled('household', self.household)} needs the whole table in memory: leave "
                f"{spelled('by_row_groups', True)} out"
            )
        smoothing(self.gamma, np.zeros(1))
        for name in ("cov_model", "protection", "rounding", "missing"):
            words, value = options_of(self)[name].choices, getattr(self, name)
            if value not in words:
                raise InputError(f"{name} must be one of {', '.join(words)}, got {value!r}")
        object.__setattr__(self, "copies", check_count("copies", self.copies))
        if self.protection == SEARCH:
            self._check_search()
        choose_covariance(self.covariance, 0)
        check_ties(self.time_decay, self.group_share)
        root_seed(self.seed)
        _ = self.sampler  # which checks its own settings

    def _check_weights(self) -> None:
        """Refuse a rule beside weights, which are in its place."""
        if self.weights is None:
            return
        if not isinstance(self.weights, str):
            raise InputError(
                "weights must be the name of a column; weights that are no column go to fit(), see "
                "own_weights"
            )
        if self.weights == self.survey_weights:
            raise InputError(
                f"{spelled('weights', self.weights)} are risk weights, which are never published, "
                f"and {spelled('survey_weights', self.weights)} are published: name the right "
                "column in each"
            )
        for name in ("threshold", "correlation", "neighbour", "by_site"):
            value = getattr(self, name)
            if value != getattr(type(self), name):
                raise InputError(
                    f"{spelled('weights', self.weights)} is in place of a rule: leave "
                    f"{spelled(name, value)} out"
                )

    @property
    def heaped(self) -> bool:
        """Whether the response has a heap, or copies that keep to a range."""
        return self.heap is not None or self.range is not None

    def _check_heap(self) -> None:
        """Refuse a heap or a range that is none, and what their model does not have."""
        if not self.heaped:
            return
        if self.heap is not None:
            heap_value(self.heap)
            CountPriors.beside(self.priors)
        if self.range is not None:
            range_ends(self.range)
        name = "range" if self.heap is None else "heap"
        for other in ("program", "hold_phi", "cluster", "resume", "by_row_groups"):
            if getattr(self, other) not in (None, False):
                raise InputError(f"a model with a {name} has no {other}: leave {other} out")
        if self.missing != "refuse":
            raise InputError(
                f"a {name} needs the response of every record: leave "
                f"{spelled('missing', self.missing)} out"
            )
        if self.protection in PROTECTIONS:
            check_heap_protection(self.heap, self.protection)

    def _check_search(self) -> None:
        """Refuse what a search decides itself, or never does."""
        for name, given, why in (
            ("correlation", self.correlation is not None, "flag by a threshold or not at all"),
            ("gamma", np.isfinite(self.gamma), "flagged records are smoothed fully"),
            ("weights", self.weights is not None, "which records are protected is searched for"),
            ("by_site", self.by_site, "flag by a threshold or not at all"),
            ("heap", self.heap is not None, "no intruder is known of a table with a heap"),
            ("range", self.range is not None, "no intruder is known of copies in a range"),
            ("accept_failed", self.accept_failed, "a fit that failed is never released"),
            ("missing", self.missing != "refuse", "no intruder is known of a table with gaps"),
        ):
            if given:
                raise InputError(f'protection is "{SEARCH}": leave {name} out, {why}')

    def refuse_search(self) -> None:
        """Refuse a search where one release is described.

        Raises InputError if the protection is ``"auto"``.
        """
        if self.protection == SEARCH:
            raise InputError(
                f'protection "{SEARCH}" is searched for with a floor, for one column: call '
                "dsstan.protect_to(problem, floor), or give synthesise a floor"
            )

    @property
    def sampler(self) -> SamplerSettings:
        """Settings of the sampler; what was left out is that of the Gaussian model."""
        return SamplerSettings(**self.of_sampler)

    @property
    def of_sampler(self) -> dict[str, Any]:
        """Settings of the sampler without those that each model decides itself."""
        values = {one.name: getattr(self, one.name, None) for one in fields(SamplerSettings)}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def fitting(self) -> dict[str, Any]:
        """Arguments of both fits that every model has in common, and that are not None."""
        names = (
            *("cov_model", "priors", "engine", "progress", "chains", "warmup", "samples"),
            *("adapt_delta", "max_treedepth", "nodes", "program", "hold_phi", "cluster", "resume"),
            *("time_decay", "group_share"),
        )
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def prepare(self, table: Any, formula: str) -> Problem:
        """The checked problem; see :func:`dsstan.prepare`."""
        prepared: Callable[..., Problem] = prepare
        if self.by_row_groups:
            prepared = partial(prepare_parquet, also=self.rule_columns)
        return prepared(
            table,
            formula,
            coords=self.coords,
            distance=self.distance,
            crs=self.crs,
            name=self.name,
            missing=self.missing,
            publish=self.publish,
            survey_weights=self.survey_weights,
            **({} if self.heap is None else {"heap": self.heap}),
            time=self.time,
            **({} if self.household is None else {"household": self.household}),
        )

    @property
    def rule_columns(self) -> tuple[str, ...]:
        """Columns that decide which records are flagged."""
        return () if self.weights is None else (self.weights,)

    @property
    def columns_beside_formula(self) -> tuple[str, ...]:
        """Columns whose numbers a release needs beside those of formula and coordinates."""
        named = (self.survey_weights, self.time)
        return (*self.rule_columns, *(name for name in named if name is not None))

    def flag(self, free: Fit, problem: Problem | None = None) -> Weights:
        """The weights of a column, or the records that the paper's rule flags, by M or by c.

        Of the fit's table, or another.
        """
        table = problem or free.problem
        if self.weights is not None:
            return own_weights(table, self.weights)
        return isolated_records(
            table,
            free.draws["phi"],
            free.cov_model,
            distance=self.threshold,
            correlation=self.correlation,
            neighbour=self.neighbour,
            by_site=self.by_site,
        )
