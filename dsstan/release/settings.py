"""The settings behind a release, as ``settings.json`` holds them. Confidential."""

from __future__ import annotations

import math
import platform
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from dsstan._version import __version__

if TYPE_CHECKING:
    from dsstan.copies.result import Synthesis
    from dsstan.models.result import Fit
    from dsstan.risk.floors import Floor


def settings(
    release: Synthesis, floor: Floor | None = None, accepted: str | None = None
) -> dict[str, Any]:
    """Everything needed to make the same release again. Confidential: it holds the seeds.

    ``accepted`` is the reason why records below the floor were accepted.
    """
    return {
        "versions": versions(),
        "synthesis": {
            "seed": str(release.seed),
            "copies": release.copies,
            "effect": release.effect,
            "rounding": None
            if release.rounding is None
            else {"steps": release.rounding.steps, "shares": release.rounding.shares},
            "noise_sd": None if release.noise is None else release.noise.tolist(),
            "imputations": None if release.imputation is None else int(release.imputation.max()),
            "hide_gaps": release.hide_gaps,
            "accepted_failed_fit": release.accepted[0],
            "accepted_few_draws": release.accepted[1],
        },
        "floor": None
        if floor is None
        else {"asked": floor.as_given, "accepted_below": accepted is not None, "reason": accepted},
        "fits": {kind: fit_settings(f) for kind, f in release.fits.items()},
    }


def versions() -> dict[str, str]:
    """Versions of the programs behind a release."""
    packages = ("numpy", "scipy", "pandas", "formulaic", "arviz-stats")
    return {
        "dsstan": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def fit_settings(fit: Fit) -> dict[str, Any]:
    """Settings of one fit."""
    weights = fit.weights
    return {
        "seed": str(fit.seed),
        "engine": fit.engine_version,
        "program": fit.program,
        "program_sha256": fit.fingerprint,
        "sampler": vars(fit.settings),
        "nodes": list(fit.nodes),
        "protection": fit.protection,
        "gamma": "infinity" if math.isinf(fit.gamma) else fit.gamma,
        "phi_held": fit.phi_held,
        "cov_model": fit.cov_model,
        "time_decay": fit.time_decay,
        "group_share": fit.group_share,
        "covariance": fit.covariance.settings,
        "refinement": None
        if fit.refinement is None
        else vars(fit.refinement) | {"left": finite(fit.refinement.left)},
        **fit.model_settings,
        "priors": vars(fit.priors),
        "weights": None
        if weights is None
        else {
            "rule": weights.rule,
            "threshold": finite(weights.threshold),
            "correlation": finite(weights.correlation),
            "neighbour": weights.neighbour,
            "by_site": weights.by_site,
            "within_group": weights.within_group,
        },
        "verdict": str(fit.verdict),
    }


def finite(value: float | None) -> float | None:
    """A finite number, or None: JSON knows no NaN."""
    return float(value) if value is not None and math.isfinite(value) else None
