"""The options of a release, each stated once: type, default, check and meaning.

:func:`dsstan.protect` takes them as keywords. The command line and job files take those that have
an :class:`Option`: it says what a person reads about them and how they are typed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import numpy as np

from dsstan.core.errors import InputError, is_number
from dsstan.core.seeds import root_seed
from dsstan.covariance.approximations import COVARIANCES, Covariance, choose_covariance
from dsstan.covariance.correlation import CORRELATIONS
from dsstan.covariance.protection import PROTECTIONS
from dsstan.engines import ENGINES, SamplerSettings
from dsstan.models.flags import flag_isolated
from dsstan.models.priors import Priors
from dsstan.models.result import Fit
from dsstan.models.weights import Weights, smoothing
from dsstan.table.coordinates import DISTANCES
from dsstan.table.parquet import prepare_parquet
from dsstan.table.problem import MISSING as GAPS
from dsstan.table.problem import Problem, prepare
from dsstan.table.rounding import ROUNDINGS

__all__ = ["GROUPS", "Option", "ReleaseOptions", "option", "options_of"]

GROUPS = (
    "Table and model",
    "Protection",
    "Copies and what they disclose",
    "Sampler",
    "This run",
)
"""Groups of options, in the help and in a job file."""

MODEL, PROTECT, COPIES, SAMPLER, RUN = GROUPS


@dataclass(frozen=True)
class Option:
    """What the command line and job files need to know of an option beside its default.

    Attributes
    ----------
    meaning, group
        The help, and the one of :data:`GROUPS` it stands in; None for a positional argument.
    choices
        The values of a choice.
    typed
        The type in which the value is typed, where the field takes more.
    required
        Whether it must be typed although the field has a default.
    metavar, flags
        The placeholder of the value in the help, and the flags, where they are not the name.
    in_job
        Whether a job file has it as a key.
    """

    meaning: str
    group: str | None
    choices: Sequence[str] = ()
    typed: Any = None
    required: bool = False
    metavar: str | None = None
    flags: tuple[str, ...] = ()
    in_job: bool = True


def option(
    default: Any, meaning: str, group: str | None, *more: Any, repr: bool = True, **others: Any
) -> Any:
    """A dataclass field with an :class:`Option`; without a default where that is ``...``."""
    stated = {"option": Option(meaning, group, *more, **others)}
    return field(default=MISSING if default is ... else default, repr=repr, metadata=stated)


def options_of(table: Any) -> dict[str, Option]:
    """The options that a dataclass states, by name."""
    return {f.name: f.metadata["option"] for f in fields(table) if "option" in f.metadata}


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
        "The two coordinate columns, x or longitude first, with a space.",
        MODEL,
        typed=tuple[str, str],
        required=True,
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
    gamma: float = option(np.inf, "Global risk parameter, 0 to inf.", PROTECT)
    protection: str = option("paper", f"{', '.join(PROTECTIONS)}.", PROTECT, choices=PROTECTIONS)
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
    engine: str = option("auto", "auto, cmdstan or embedded.", SAMPLER, choices=("auto", *ENGINES))
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
        *("refuse", "A response that is missing: refuse, or draw it with the model.", MODEL, GAPS)
    )
    imputations: int | None = option(
        None, "M, how often a missing response is drawn (5); L / M copies of each.", COPIES
    )
    by_row_groups: bool = option(
        False,
        "TABLE is Parquet, a file or a folder, larger than memory: read only the needed "
        "columns, a row group at a time; needs --format parquet.",
        MODEL,
    )
    progress: bool | None = None
    chains: int = option(4, "Chains of the sampler.", SAMPLER)
    warmup: int | None = option(1000, "Warm-up iterations a chain.", SAMPLER)
    samples: int = option(1000, "Kept iterations a chain.", SAMPLER)
    adapt_delta: float = option(0.9, "Acceptance the sampler aims at.", SAMPLER)
    max_treedepth: int = 10
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
        smoothing(self.gamma, np.zeros(1))
        for name in ("cov_model", "protection", "rounding", "missing"):
            words, value = options_of(self)[name].choices, getattr(self, name)
            if value not in words:
                raise InputError(f"{name} must be one of {', '.join(words)}, got {value!r}")
        if not is_number(self.copies) or self.copies < 1:
            raise InputError("copies must be a whole number of at least 1")
        choose_covariance(self.covariance, 0)
        root_seed(self.seed)
        _ = self.sampler  # which checks its own settings

    @property
    def sampler(self) -> SamplerSettings:
        """Settings of the sampler; a warm-up of None is that of the Gaussian model."""
        warmup = SamplerSettings.warmup if self.warmup is None else self.warmup
        return SamplerSettings(
            self.chains, warmup, self.samples, self.adapt_delta, self.max_treedepth
        )

    @property
    def fitting(self) -> dict[str, Any]:
        """Arguments of both fits that every model has in common, and that are not None."""
        names = (
            *("cov_model", "priors", "engine", "progress", "chains", "warmup", "samples"),
            *("adapt_delta", "max_treedepth", "nodes", "program", "hold_phi", "cluster", "resume"),
        )
        values = {name: getattr(self, name) for name in names}
        return {name: value for name, value in values.items() if value is not None}

    def prepare(self, table: Any, formula: str) -> Problem:
        """The checked problem; see :func:`dsstan.prepare`."""
        prepared = prepare_parquet if self.by_row_groups else prepare
        return prepared(
            table,
            formula,
            coords=self.coords,
            distance=self.distance,
            crs=self.crs,
            name=self.name,
            missing=self.missing,
        )

    def flag(self, free: Fit) -> Weights:
        """The records that the paper's rule flags, by M or by c."""
        return flag_isolated(
            free, distance=self.threshold, correlation=self.correlation, neighbour=self.neighbour
        )
