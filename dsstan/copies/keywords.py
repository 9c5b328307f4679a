"""The options of a release as keywords, for type checkers and editors.

A test compares them with those of :class:`dsstan.copies.options.ReleaseOptions`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict

from dsstan.covariance.approximations import Covariance
from dsstan.models.priors import Priors
from dsstan.table.records.heaps import HeapLike


class StrataKeywords(TypedDict, total=False):
    """Options of a release by strata."""

    distance: str | None
    crs: Any
    threshold: float | None
    correlation: float | None
    neighbour: int
    by_site: bool
    weights: str | None
    gamma: float
    protection: str
    cov_model: str
    covariance: str | Covariance
    priors: Priors | None
    engine: str
    workers: int
    accept_failed: bool
    strict: bool
    rounding: str
    missing: str
    heap: HeapLike | None
    range: tuple[float | None, float | None] | None
    accept_proxy: list[str] | None
    imputations: int | None
    hide_gaps: bool
    by_row_groups: bool
    publish: Sequence[str] | None
    survey_weights: str | None
    time: str | None
    time_decay: float | None
    group_share: float | None
    chains: int
    warmup: int | None
    samples: int | None
    adapt_delta: float
    max_treedepth: int
    nodes: tuple[int, int] | None
    program: str | None
    hold_phi: bool | None


class ReleaseKeywords(StrataKeywords, total=False):
    """The same of a whole release."""

    coords: tuple[str, str] | None
    household: str | None
    name: str | None
    copies: int
    seed: int | None
    progress: bool | None
    cluster: Any
    resume: Any
