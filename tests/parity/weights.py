"""Python's side of ``weights.R``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from dsstan.models.flags import flag_isolated
from dsstan.models.weights import Weights, alpha_from_gamma, gamma_from_alpha, isolation_distance
from factory import fit_from

from .cases import case, inputs
from .golden import Floats, Values


def flagged(correlation: float | None = None, distance: float | None = None) -> Weights:
    """Flags of the hand-made case under the draws of phi."""
    draws = np.array(inputs("weights")["phi_draws"])
    fit = fit_from(case("hand").problem, {"phi": draws})
    return flag_isolated(fit, correlation=correlation, distance=distance)


def values() -> Values:
    """Each quantity by its key."""
    own = inputs("weights")
    out: dict[str, Callable[[], ArrayLike]] = {
        "flags/tie": lambda: flagged(distance=own["distance"]).a,
        "probability/tie": lambda: flagged(distance=own["distance"]).probability,
    }
    phi_hat = float(np.median(own["phi_draws"]))
    for c in own["correlations"]:
        out |= _of_correlation(c, phi_hat)
    alpha = own["alpha"]
    for i, (s, t) in enumerate(zip(alpha["sigma_sq"], alpha["tau_sq"], strict=True), 1):
        out[f"alpha/{i}"] = partial(_alphas, s, t, [float(g) for g in alpha["gamma"]])
        out[f"gamma/{i}"] = partial(_gammas, s, t, alpha["alpha"])
    return out


def _of_correlation(c: float, phi_hat: float) -> dict[str, Callable[[], ArrayLike]]:
    return {
        f"M/formula/{c:g}": lambda: flagged(c).threshold,
        f"M/solved/{c:g}": lambda: isolation_distance(c, phi_hat),
        f"flags/{c:g}": lambda: flagged(c).a,
        f"probability/{c:g}": lambda: flagged(c).probability,
    }


def _alphas(sigma_sq: float, tau_sq: float, gammas: list[float]) -> Floats:
    return np.array([alpha_from_gamma(g, sigma_sq, tau_sq) for g in gammas])


def _gammas(sigma_sq: float, tau_sq: float, alphas: list[float]) -> Floats:
    return np.array([gamma_from_alpha(a, sigma_sq, tau_sq) for a in alphas])
