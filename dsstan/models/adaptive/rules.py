"""How far each record is smoothed where that depends on the parameters themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, is_number
from dsstan.covariance.correlation import correlation_distance, dissimilarity
from dsstan.models.weights import PAPER_CORRELATION

RULES = ("ratio", "alpha", "step")


@dataclass(frozen=True)
class AdaptiveRule:
    """Weights and global risk parameter as functions of (phi, r), r = tau_sq / sigma_sq.

    Attributes
    ----------
    name
        ``"ratio"``: the discussion of Quick, Holan and Wikle (2018),
        a_i = 1 - correlation(d_i) and gamma = max(0, sigma_sq / tau_sq - 1).
        ``"alpha"``: the same weights, gamma from the paper's eq. alpha, clipped at 0:
        gamma = max(0, (1 / r) (1 - alpha) / alpha - 1). ``"ratio"`` is alpha = 1/2.
        ``"step"``: A_i^2 = 1 - s_i gamma / (1 + gamma), gamma given and s_i a smooth step
        about the distance M(phi) at which the correlation has fallen to c.
    alpha
        Degree of smoothing of a record far from all others.
    c, width, gamma
        Of the step: its place; its width in log distance, s_i = 1 / (1 + (M / d_i)^(1 / width));
        the global risk parameter, which may be infinite.
    """

    name: str = "ratio"
    alpha: float = 0.5
    c: float = PAPER_CORRELATION
    width: float = 0.25
    gamma: float = float("inf")

    def __post_init__(self) -> None:
        """Refuse settings outside their range."""
        if self.name not in RULES:
            raise InputError(f"rule must be one of {', '.join(RULES)}, got {self.name!r}")
        if not (is_number(self.alpha) and 0 < self.alpha < 1):
            raise InputError("alpha must lie between 0 and 1")
        if not (is_number(self.c) and 0 < self.c < 1):
            raise InputError("correlation must lie between 0 and 1")
        if not (is_number(self.width) and 0 < self.width < np.inf):
            raise InputError("width must be positive and finite")
        if not (is_number(self.gamma) and self.gamma >= 0):
            raise InputError("gamma must be a number from 0 to infinity")

    @property
    def kink(self) -> float:
        """Ratio r above which gamma is 0; infinite where gamma does not depend on r."""
        return float("inf") if self.name == "step" else (1.0 - self.alpha) / self.alpha

    @property
    def kept(self) -> float:
        """Share of the effect's variance that a step leaves far beyond it, 1 / (1 + gamma)."""
        return float(1.0 / (1.0 + self.gamma))

    def reach(self, cov_model: str) -> float:
        """phi times the distance of the step."""
        return correlation_distance(self.c, 1.0, cov_model)

    def gamma_at(self, r: float | Floats) -> Floats:
        """Global risk parameter at nugget ratios, of their shape."""
        ratio = np.asarray(r, dtype=np.float64)
        if self.name == "step":
            return np.full(ratio.shape, self.gamma)
        return np.asarray(np.maximum(0.0, self.kink / ratio - 1.0))

    def diagonal(self, nearest: Floats, phi: float, r: float, cov_model: str) -> Floats:
        """Diagonal of A by the distances to neighbours, both of shape (N,); section 6 of the paper.

        Examples
        --------
        >>> AdaptiveRule().diagonal(np.array([0.0, 1e9]), 1.0, 0.25, "exponential")
        array([1. , 0.5])
        """
        if self.name != "step":
            a = dissimilarity(nearest, phi, cov_model)
            return np.asarray(1.0 / np.sqrt(1.0 + self.gamma_at(r) * a))
        x = self._position(nearest, phi, cov_model)
        return np.asarray(np.sqrt(expit(-x) + self.kept * expit(x)))

    def weights(self, nearest: Floats, phi: float, cov_model: str) -> Floats:
        """Risk weights a, shape (N,): of a step s_i, else 1 - correlation."""
        if self.name == "step":
            return np.asarray(expit(self._position(nearest, phi, cov_model)))
        return dissimilarity(nearest, phi, cov_model)

    def _position(self, nearest: Floats, phi: float, cov_model: str) -> Floats:
        """log(d / M(phi)) over the width; minus infinity at distance 0."""
        with np.errstate(divide="ignore"):
            return np.asarray((np.log(nearest) + np.log(phi / self.reach(cov_model))) / self.width)

    def settings(self) -> dict[str, float | str]:
        """The settings that the rule uses, for ``settings.json``."""
        if self.name != "step":
            return {"rule": self.name, "alpha": self.alpha}
        gamma = "infinity" if np.isinf(self.gamma) else self.gamma
        return {"rule": "step", "c": self.c, "width": self.width, "gamma": gamma}
