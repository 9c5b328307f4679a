"""What to type where a check is not met: an option, its value and the value now."""

from __future__ import annotations

import math
import re

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.spelling import spelled
from dsstan.covariance.eigenbasis import alone
from dsstan.engines.base import SamplerSettings
from dsstan.models.weights import Weights
from dsstan.table.columns import factorized
from dsstan.table.problem import Problem
from dsstan.table.records.households import SITE

MOST_TIMES = 16
"""Largest factor by which longer chains are advised."""
_HIGH_DELTA, _HIGHEST_DELTA = 0.99, 0.999
_DEEPER = 2
_REPEATED_SHARE = 0.5
"""Share of the records beyond one a site from which their values explain a nugget of zero."""


def times_longer(need: float, found: float) -> int:
    """How many times as long a chain must be for ``need`` where it gave ``found``."""
    enough = math.ceil(need / found) if found > 0 else MOST_TIMES
    return min(MOST_TIMES, max(2, enough))


def more_samples(settings: SamplerSettings, times: int = 2) -> str:
    """Longer chains after a warm-up that was long enough."""
    return f"{spelled('samples', times * settings.samples)} ({settings.samples} now)"


def more_warmup(settings: SamplerSettings) -> str:
    """A longer warm-up."""
    return f"{spelled('warmup', 2 * settings.warmup)} ({settings.warmup} now)"


def shorter_steps(settings: SamplerSettings) -> str:
    """Steps short enough for what the chains diverged at."""
    now = settings.adapt_delta
    value = _HIGH_DELTA if now < _HIGH_DELTA else _HIGHEST_DELTA if now < _HIGHEST_DELTA else None
    if value is None:
        return f"{more_warmup(settings)}, or priors that rule out the place where chains diverge"
    return f"{spelled('adapt_delta', value)} ({now:g} now)"


def deeper_trees(settings: SamplerSettings) -> str:
    """Covariates that make short paths, or longer paths."""
    deeper = settings.max_treedepth + _DEEPER
    return (
        "centre the covariates, with scale() in the formula; or in Python "
        f"max_treedepth={deeper} ({settings.max_treedepth} now)"
    )


def wider_decay(bounds: tuple[float, float], *, low: bool, high: bool) -> str:
    """A range of the decay ten times wider at the ends that draws lean on."""
    wider = (bounds[0] / 10 if low else bounds[0], bounds[1] * 10 if high else bounds[1])
    rounded = (float(f"{wider[0]:.3g}"), float(f"{wider[1]:.3g}"))
    now = f"{bounds[0]:.3g} to {bounds[1]:.3g} now"
    return f"{spelled('phi_bounds', rounded, of='priors')} ({now}); or say why it ends there"


def fewer_flagged(nearest: Floats, now: float, unit: str) -> str:
    """A distance that flags half of the records at most; the one ``now``, and their unit."""
    middle = float(np.sort(nearest)[::-1][len(nearest) // 2])
    half = float(f"{1.01 * middle:.3g}")
    typed = spelled("threshold", half)
    return f"{typed}, in {unit}s, which flags half at most ({now:.3g} {unit}s now)"


def fewer_copies(copies: int, worst_ess: float, settings: SamplerSettings) -> str:
    """Fewer copies, or draws enough for so many."""
    longer = more_samples(settings, times_longer(copies, worst_ess))
    if not 1 <= worst_ess < math.inf:
        return longer
    return f"{longer}, or {spelled('copies', int(worst_ess))} ({copies} now)"


def shared_places(problem: Problem, weights: Weights) -> str | None:
    """Why a rule about neighbours flags nobody where every record shares its place; what to do."""
    shared = problem.n_coincident == problem.n_records
    if not shared or weights.by_site or weights.rule == "own":
        return None
    when = None if problem.structure is not None else _time(problem)
    panel = "" if when is None else f"; if {when!r} is when, say so too ({spelled('time', when)})"
    return (
        "every record shares its place with another one, so none stands alone on the map: count "
        f"places as neighbours ({spelled('by_site', True)}){panel}"
    )


_TIMES = re.compile(r"(^|[ _.])(year|date|month|quarter|time|day|jahr|datum)s?($|[ _.])")


def _time(problem: Problem) -> str | None:
    """A column that by its name is a time, and has one record a place and value; or None."""
    for name in problem.table.columns:
        if _TIMES.search(str(name).lower()) and name not in problem.coord_names:
            number, _ = factorized(problem.table[name])
            pairs = np.column_stack([problem.site_index, number])
            if len(np.unique(pairs, axis=0)) == len(pairs) and number.max() > 0:
                return str(name)
    return None


def lone_records(X: Floats) -> str | None:
    """How many records alone decide a coefficient, and what to do; None where none does."""
    own = int(alone(X).sum())
    if not own:
        return None
    many = f"{own} records each decide" if own > 1 else "1 record alone decides"
    return (
        f"{many} a coefficient, as the only record of a level does, so that its copies come from "
        "its own value: merge the level with another, or leave the column out of the formula"
    )


def repeated_values(problem: Problem) -> str | None:
    """Why a table has no nugget, if records of a site repeat one another; and what to do.

    The records beyond one a site are all that tells the nugget from a spatial effect that changes
    over short distances. Where at least half of them have the response of another record there, a
    nugget of zero is what the table says.
    """
    there = problem.observed
    site, y = problem.site_index[there], problem.y[there]
    beyond = len(site) - len(np.unique(site))
    values = np.column_stack([site, y])
    same = len(values) - len(np.unique(values, axis=0))
    if not beyond or same < _REPEATED_SHARE * beyond:
        return None
    whole = np.column_stack([values, problem.X[there]])
    rows = len(whole) - len(np.unique(whole, axis=0))
    sites = len(np.unique(site[_repeats(values)]))
    said = [f"{rows} of {len(site)} records repeat another one whole"] if rows else []
    if same > rows:
        said.append(
            f"{same} of the {beyond} records beyond one a site have the response of another record "
            f"there, at {sites} sites"
        )
    household = _household(problem)
    if household is not None:
        return (
            f"{', and '.join(said)}, so the copies repeat them too. The records of each "
            f"{household!r} have one place and one response: make them one record, "
            f"{spelled('household', household)}"
        )
    first = "" if rows == same else ", once each has one value of every column that it needs"
    return (
        f"{', and '.join(said)}, so the copies repeat them too. If records of a site are one "
        f"household, make them one record: {spelled('household', SITE)}{first}"
    )


_NUMBERED = re.compile(r"hous|home|famil|dwelling|haush|(^|[ _.])(hh|hid)", re.IGNORECASE)


def _household(problem: Problem) -> str | None:
    """A column that by its name numbers the households, each of one place and one response."""
    whole = np.column_stack([problem.site_index, problem.y])
    for name in problem.table.columns:
        column = problem.table[name]
        if not _NUMBERED.search(str(name)) or name == problem.response or column.isna().any():
            continue
        number, _ = factorized(column)
        _, first = np.unique(number, return_index=True)
        if len(first) < len(number) and np.array_equal(whole[first][number], whole, True):
            return str(name)
    return None


def _repeats(values: Floats) -> Floats:
    """Whether each row is there more than once."""
    _, inverse, counts = np.unique(values, axis=0, return_inverse=True, return_counts=True)
    return np.asarray(counts[inverse.reshape(-1)] > 1)
