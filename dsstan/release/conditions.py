"""The verdict on the fits of a release, and every condition that it did not meet."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from dsstan.analysis.marginals import marginals
from dsstan.copies.result import Synthesis
from dsstan.core.seeds import GUESSABLE_BITS
from dsstan.models.checks.conditions import Check, few_draws, short_seed


def conditions(release: Synthesis) -> list[dict[str, Any]]:
    """Every condition that a release did not meet, as plain values; of all columns of a chain.

    One entry each: ``condition``, ``severity``, ``fit``, and name, where, value, limit and
    advice of the :class:`dsstan.models.checks.conditions.Check`. A value that is not finite is
    None.
    """
    found: list[tuple[str, Check]] = []
    for number, step in enumerate(release.steps, 1):
        of = "" if len(release.steps) == 1 else f"step {number}, "
        found += [
            (of + fit.kind, check)
            for fit in step.fits.values()
            for check in (*fit.verdict.failures, *fit.verdict.warnings)
        ]
        last = few_draws(step.copies, step.fit.worst_ess, step.fit.settings)
        if last.severity != "ok":
            found.append((of + step.fit.kind, last))
        unlike = [check for check in marginals(step).checks if check.severity != "ok"]
        found += [(of + step.fit.kind, check) for check in unlike]
        if step.seed_bits < GUESSABLE_BITS:
            found.append((of + step.fit.kind, short_seed(step.seed_bits)))
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
