"""The verdict on the fits of a release, and every condition that it did not meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from dsstan.analysis.marginals import marginals
from dsstan.copies.result import Synthesis
from dsstan.core.seeds import GUESSABLE_BITS
from dsstan.models.checks.conditions import Check, few_draws, short_seed
from dsstan.models.result import Fit


def conditions(release: Synthesis) -> list[dict[str, Any]]:
    """Every condition that a release did not meet, as plain values; of all columns of a chain.

    One entry each: ``condition``, ``severity``, ``fit``, and name, where, value, limit and
    advice of the :class:`dsstan.models.checks.conditions.Check`. A value that is not finite is
    None.
    """
    found: list[tuple[str, Check]] = []
    for number, step in enumerate(release.steps, 1):
        of = "" if len(release.steps) == 1 else f"step {number}, "
        found += of_fit(step.fit, step.copies, of)
        unlike = [check for check in marginals(step).checks if check.severity != "ok"]
        found += [(of + step.fit.kind, check) for check in unlike]
        if step.seed_bits < GUESSABLE_BITS:
            found.append((of + step.fit.kind, short_seed(step.seed_bits)))
    return entries_of(found)


def of_fit(fit: Fit, copies: int, of: str = "") -> list[tuple[str, Check]]:
    """What a fit, and the one it started from, did not meet, with their kind after ``of``."""
    found = [
        (of + one.kind, check)
        for one in (fit.start, fit)
        if one is not None
        for check in (*one.verdict.failures, *one.verdict.warnings)
    ]
    last = few_draws(copies, fit.worst_ess, fit.settings)
    return found if last.severity == "ok" else [*found, (of + fit.kind, last)]


def entries_of(found: Sequence[tuple[str, Check]]) -> list[dict[str, Any]]:
    """Conditions as plain values, with the name of their fit."""
    entries = []
    for name, check in found:
        entry = asdict(check) | {"fit": name}
        entry["value"] = check.value if np.isfinite(check.value) else None
        entries.append(entry)
    return entries


def fit_verdict(release: Synthesis) -> str:
    """``ok``, ``warned`` or ``failed``: whether the fits behind a release are good enough.

    It says nothing of what the release discloses.
    """
    if not all(fit.verdict.passed for step in release.steps for fit in step.fits.values()):
        return "failed"
    return "warned" if conditions(release) else "ok"
