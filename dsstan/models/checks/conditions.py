"""Statistics that must not become a release: each a condition with a name and a severity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.seeds import GUESSABLE_BITS
from dsstan.core.spelling import spelled
from dsstan.engines.base import SamplerSettings
from dsstan.models.checks.advice import fewer_copies, fewer_flagged, wider_decay
from dsstan.models.checks.diagnostics import rhat
from dsstan.models.priors import ResolvedPriors

__all__ = [
    "CONDITIONS",
    "Check",
    "at_bounds",
    "at_window",
    "few_draws",
    "most_flagged",
    "reach_note",
    "several_modes",
]


LEANING_SHARE = 0.05
"""Share of draws at a bound beyond which it is a warning."""
STUCK_SHARE = 0.5
"""Share beyond which the bound decides, and the fit fails."""
LEANING_ZONE = 0.02
GROWN = 1.05
"""Growth of a coefficient's sd under a wider range that is worth a word."""
NUGGET_RATIO = 1e-3
"""tau_sq / sigma_sq below which a copy repeats its record to three per cent of sigma."""
NOISE_RATIO = 1e3
"""tau_sq / sigma_sq above which the spatial effect is at most three per cent of tau."""
FLAGGED_SHARE = 0.5
APART_RHAT = 1.1
ALONE_RHAT = 1.05

CONDITIONS = {
    "not-converged": "the chains disagree, wander or met divergences, so the draws are not yet the "
    "posterior",
    "several-modes": "each chain is steady, at a place of its own: the posterior has several modes",
    "surface-error": "the interpolated likelihood is not the exact one",
    "approximation-error": "Vecchia's likelihood is not near enough to the exact one, so the "
    "posterior may be moved by more than a tenth of its sd",
    "no-nugget": "tau_sq is as good as zero, so the model repeats each value, and so do the copies "
    "of all records that are not smoothed",
    "no-spatial-effect": "sigma_sq is as good as zero: there is nothing to smooth",
    "phi-at-bound": "the decay is at an end of its range, so the range decides how far the spatial "
    "effect reaches",
    "most-flagged": "more than half of the records are flagged, so the restricted model learns "
    "space from the rest",
    "copies-beyond-ess": "there are more copies than independent draws, so copies share what they "
    "should not",
    "unlike-the-data": "copies have zeros, negative values, ends or quantiles that the data do not "
    "have, or lack those that they have: the model is not that of this column",
    "guessable-seed": "the seed was given and is so short that an intruder can try all of them; "
    "whoever finds it can subtract the noise of the copies",
    "mask-from-table": "the study area was drawn from the table, so that its cells tell where "
    "records are",
    "lonely-values": "records whose place informs nothing inform the spatial effect of a column, "
    "which then tells that somebody is there",
}
"""Every condition and what it means."""


@dataclass(frozen=True)
class Check:
    """One thing looked at in a verdict.

    Attributes
    ----------
    name
        What is measured, e.g. ``"rhat"``.
    value
        Its worst value.
    limit
        What it should meet, in words.
    severity
        ``"ok"``, ``"warning"`` or ``"failure"``.
    where
        The parameter concerned, if any.
    advice
        What to do, if it is not met.
    condition
        What it means if it is not met, one of :data:`CONDITIONS`.
    """

    name: str
    value: float
    limit: str
    severity: str
    where: str = ""
    advice: str = ""
    condition: str = ""

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        met = self.severity == "ok"
        advice = "" if met else f": {self.advice}"
        named = "" if met or not self.condition else f"{self.condition}, "
        return (
            f"{self.severity}: {named}{self.name}{place} {self.value:.4g}, should be "
            f"{self.limit}{advice}"
        )


def several_modes(draws: Floats) -> bool:
    """Whether each chain alone is steady, while together they are not.

    Parameters
    ----------
    draws
        Of one parameter, shape (chains, samples).
    """
    if len(draws) < 2 or not rhat(draws) >= APART_RHAT:
        return False
    half = draws.shape[1] // 2
    return all(rhat(np.stack([chain[:half], chain[-half:]])) < ALONE_RHAT for chain in draws)


def at_bounds(
    draws: Mapping[str, Floats],
    phi_bounds: Any,
    r_bounds: Any,
    *,
    phi_stated: bool = True,
    repeated: str | None = None,
) -> list[Check]:
    """Whether the variances' ratio or the decay is at an end of its range.

    Parameters
    ----------
    draws
        ``phi`` where it was free, and ``sigma_sq`` and ``tau_sq`` where there are ``r_bounds``.
    phi_bounds
        Range of the decay; None where it was held.
    r_bounds
        Range of tau_sq / sigma_sq; None for a model without a nugget.
    phi_stated
        Whether the user stated the range of the decay. The default range begins where the effect
        reaches across the whole table, and a table cannot tell more: draws there are a warning
        only in a range that was stated, and a failure where most are there.
    repeated
        Why the table has no nugget, if its records show it.
    """
    checks = [] if r_bounds is None else _ratio_checks(draws, r_bounds, repeated)
    if phi_bounds is not None:
        low, high = _ends(draws["phi"], phi_bounds)
        share = high if not phi_stated and low <= STUCK_SHARE else low + high
        ends = {"low": low > LEANING_SHARE / 2, "high": high > LEANING_SHARE / 2}
        advice = wider_decay(phi_bounds, **ends)
        checks.append(_leaning("phi", share, "phi-at-bound", "at its ends", advice))
    return checks


def reach_note(
    phi: Floats,
    phi_bounds: tuple[float, float],
    rise: tuple[str, float] | None = None,
    phi_rate: float = 0.0,
) -> str | None:
    """What to know where the decay reaches the low end of its default range; else None.

    Parameters
    ----------
    phi
        Draws, shape (chains, samples).
    phi_bounds
        The default range.
    rise
        The term whose sd grows most under a wider range, and by how much
        (``dsstan.models.wider_range``).
    phi_rate
        Of the prior of the decay, 0 where it is uniform.
    """
    low, _ = _ends(phi, phi_bounds)
    said = []
    if LEANING_SHARE < low <= STUCK_SHARE:
        said.append(
            "the spatial effect reaches across the whole table, which cannot tell how much "
            f"farther: {100 * low:.0f}% of the draws of the decay are at the low end of its "
            "default range. A rule by correlation flags almost nobody here, and one by distance as "
            "many as it says; phi_bounds gives another range"
        )
    if rise is not None and rise[1] >= GROWN:
        said.append(
            f"{'If' if said else 'if'} the range of the decay began at a tenth of its default low "
            f"end, the sd of {rise[0]} would be {rise[1]:.2g} times as large: its interval may be "
            "too narrow"
        )
        if phi_rate == 0.0:
            other = spelled("decay", "penalised-complexity", of="priors")
            said[-1] += f", and {other} gives a wider one"
    return ". ".join(said) or None


def at_window(
    draws: Mapping[str, Floats], sampled: ResolvedPriors, priors: ResolvedPriors
) -> list[Check]:
    """Whether draws lie at an end of the box to which the surface of many records was narrowed.

    Parameters
    ----------
    draws
        ``phi``, ``sigma_sq`` and ``tau_sq``.
    sampled, priors
        The priors cut to that box, and whole. Equal ends are no ends of the box.
    """
    if sampled == priors:
        return []
    share = 0.0
    for values, part, whole in (
        (draws["phi"], sampled.phi_bounds, priors.phi_bounds),
        (draws["tau_sq"] / draws["sigma_sq"], sampled.r_bounds, priors.r_bounds),
    ):
        ends = _ends(values, part)
        share += sum(end for end, cut, own in zip(ends, part, whole, strict=True) if cut != own)
    return [
        Check(
            "share at the ends of the surface",
            share,
            "0",
            "ok" if share == 0.0 else "failure",
            "phi and tau_sq / sigma_sq",
            "give narrower ranges of phi and tau_sq / sigma_sq (Priors)",
            "surface-error",
        )
    ]


def _ratio_checks(draws: Mapping[str, Floats], r_bounds: Any, repeated: str | None) -> list[Check]:
    """The checks of tau_sq / sigma_sq."""
    ratio = draws["tau_sq"] / draws["sigma_sq"]
    edge = (r_bounds[1] / r_bounds[0]) ** LEANING_ZONE
    least, most = max(NUGGET_RATIO, r_bounds[0] * edge), min(NOISE_RATIO, r_bounds[1] / edge)
    low, high = float(np.mean(~(ratio >= least))), float(np.mean(~(ratio <= most)))
    more_flagged = (
        "flag more records, by a smaller threshold, and ask for a floor, which says how near the "
        f"copies come: {spelled('floor', '10%')}"
    )
    places = "look at the coordinates; if they are right, no record stands out by its place"
    ratio_of = "tau_sq / sigma_sq"
    return [
        _leaning(ratio_of, low, "no-nugget", f"below {least:.2g}", repeated or more_flagged),
        _leaning(ratio_of, high, "no-spatial-effect", f"above {most:.2g}", places),
    ]


def _ends(draws: Floats, bounds: tuple[float, float]) -> tuple[float, float]:
    """Share of draws within two per cent (in logs) of each end of the range."""
    width = np.log(bounds[1] / bounds[0])
    with np.errstate(divide="ignore", invalid="ignore"):
        position = np.log(draws / bounds[0]) / width
    return (
        float(np.mean(~(position >= LEANING_ZONE))),
        float(np.mean(position > 1 - LEANING_ZONE)),
    )


def _leaning(where: str, share: float, condition: str, end: str, advice: str) -> Check:
    """The check of one end."""
    stuck, leans = share > STUCK_SHARE, share > LEANING_SHARE
    return Check(
        f"share {end}",
        share,
        f"at most {LEANING_SHARE:g}, and at most {STUCK_SHARE:g} to pass",
        "failure" if stuck else "warning" if leans else "ok",
        where,
        advice,
        condition,
    )


def most_flagged(
    flagged: int,
    records: int,
    *,
    chosen: bool,
    nearest: Floats | None = None,
    threshold: float = np.nan,
    unit: str = "coordinate unit",
) -> Check:
    """Whether more than half of the records are flagged.

    Parameters
    ----------
    flagged, records
        How many.
    chosen
        Whether the caller gave the weights; it is then a warning.
    nearest, threshold
        Distances to the nearest neighbour, shape (N,), and that from which a record is flagged;
        None where no distance flags.
    unit
        Of both.
    """
    share = flagged / records
    worst = "warning" if chosen else "failure"
    return Check(
        "flagged share",
        share,
        f"at most {FLAGGED_SHARE:g}",
        worst if share > FLAGGED_SHARE else "ok",
        advice="give fewer records a weight"
        if nearest is None or chosen
        else fewer_flagged(nearest, threshold, unit),
        condition="most-flagged",
    )


def few_draws(copies: int, worst_ess: float, settings: SamplerSettings) -> Check:
    """Whether there are more copies than independent draws from these settings."""
    return Check(
        "copies",
        float(copies),
        f"at most the effective sample size {worst_ess:.0f}",
        "ok" if copies <= worst_ess else "failure",
        advice=fewer_copies(copies, worst_ess, settings),
        condition="copies-beyond-ess",
    )


def short_seed(bits: int) -> Check:
    """A seed of so many bits that was given and can be found by trying."""
    return Check(
        "bits of the seed",
        float(bits),
        f"at least {GUESSABLE_BITS} where the data are confidential",
        "warning",
        advice="leave the seed out: a fresh one of 128 bits is drawn and recorded",
        condition="guessable-seed",
    )


def own_mask(cells: int) -> Check:
    """A mask of so many cells that was drawn from the table."""
    return Check(
        "cells of the mask",
        float(cells),
        "from polygons or addresses that are public",
        "warning",
        advice="give the study area as a file of polygons, or a public list of addresses",
        condition="mask-from-table",
    )


def lonely_values(records: int) -> Check:
    """So many lonely records keep their spatial effect in a model of values."""
    return Check(
        "lonely records that are not flagged",
        float(records),
        "0",
        "warning",
        advice="flag them too, own_weights(problem, fit.flagged | intensity.lonely), and fit again",
        condition="lonely-values",
    )
