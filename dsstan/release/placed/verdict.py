"""FIT and DISCLOSURE of a release with synthetic places."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsstan.copies.places.result import PlacedRelease
from dsstan.core.seeds import GUESSABLE_BITS
from dsstan.models.checks.conditions import Check, lonely_values, own_mask, short_seed
from dsstan.release.conditions import entries_of, of_fit
from dsstan.release.verdicts import VerdictLine, disclosure_line, fit_line

__all__ = ["conditions_of", "judged_of", "placed_lines", "placed_verdict", "surfaces_of", "unmet"]

NOT_JUDGED = "no intruder of places was assessed"


def conditions_of(release: PlacedRelease) -> list[dict[str, Any]]:
    """Every condition that the release did not meet, as plain values."""
    found: list[tuple[str, Check]] = []
    for number, fit in enumerate(release.fits, 1):
        of = "" if len(release.fits) == 1 else f"step {number}, "
        found += of_fit(fit, release.copies, of)
        telling = int(np.sum(release.intensity.lonely & (fit.A != 0.0)))
        if telling:
            found.append((of + fit.kind, lonely_values(telling)))
    for kind, fit in surfaces_of(release).items():
        checks = (*fit.verdict.failures, *(c for c in fit.verdict.warnings if not _natural(c)))
        found += [(f"intensity, {kind}", check) for check in checks]
    mask = release.intensity.mask
    if mask.source == "table":
        found.append(("intensity", own_mask(mask.n_cells)))
    if release.seed_bits < GUESSABLE_BITS:
        found.append(("copies", short_seed(release.seed_bits)))
    return entries_of(found)


def placed_verdict(release: PlacedRelease) -> str:
    """``ok``, ``warned`` or ``failed``: whether the fits are good enough."""
    fits = [one for fit in release.fits for one in (fit.start, fit) if one is not None]
    if not all(one.verdict.passed for one in (*fits, *surfaces_of(release).values())):
        return "failed"
    return "warned" if conditions_of(release) else "ok"


def surfaces_of(release: PlacedRelease) -> dict[str, Any]:
    """Fits behind the intensity that have a verdict, by kind."""
    found = release.intensity.fits.items()
    return {kind: fit for kind, fit in found if hasattr(fit, "verdict")}


def _natural(check: Check) -> bool:
    """Whether a warning of an intensity asks for nothing: a table may be like a surface that is
    flat, or one of cells that are independent, which is what the ends of its ranges say."""
    return check.condition in ("phi-at-bound", "no-spatial-effect")


def judged_of(assessment: Any) -> tuple[str, str]:
    """``met``, ``missed`` or ``not judged``, and why."""
    if assessment is None:
        return "not judged", NOT_JUDGED
    return str(assessment.verdict).lower(), str(getattr(assessment, "why", ""))


def unmet(release: PlacedRelease) -> list[str]:
    """Names of the conditions that are not met, with the fit where it is the intensity's."""
    names = (
        f"{one['condition']} (intensity)"
        if str(one["fit"]).startswith("intensity")
        else str(one["condition"])
        for one in conditions_of(release)
    )
    return list(dict.fromkeys(names))


def placed_lines(
    release: PlacedRelease, assessment: Any, accepted: str | None = None
) -> tuple[VerdictLine, VerdictLine]:
    """FIT and DISCLOSURE; ``accepted`` is the reason why a missed limit is accepted."""
    fit = fit_line(placed_verdict(release), unmet(release))
    return fit, disclosure_line(*judged_of(assessment), accepted)
