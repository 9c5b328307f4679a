"""What becomes of the variance that smoothing removes: the protections, and what sets them apart.

Section 2 of the method. V = sigma_sq A R A + D, and D is the protection:

==============  ==========================================  ===============================
``paper``       ``D = tau_sq I``                            what the paper does
``preserving``  ``D_ii = tau_sq + sigma_sq (1 - A_ii^2)``   the variance returns as noise
``cut``         ``D = tau_sq I`` of the unflagged records   flagged records leave the fit
==============  ==========================================  ===============================

Other rooms ask for what they need to know of a protection; none compares its name.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import InputError


@dataclass(frozen=True)
class Protection:
    """One way to treat the variance that smoothing removes.

    Attributes
    ----------
    name
        As it is asked for.
    stan_number
        As the Stan programs take it.
    flagged_leave
        Whether flagged records leave the fit, whatever gamma is.
    variance_returns
        Whether the removed variance returns as noise of the observation.
    smoothed_copies
        Whether copies carry w* = A w under partial smoothing, and not w.
    latent
        Whether models that sample w itself have it: counts, and the truncated likelihood.
    """

    name: str
    stan_number: int
    flagged_leave: bool = False
    variance_returns: bool = False
    smoothed_copies: bool = False
    latent: bool = False

    @property
    def ignores_gamma(self) -> bool:
        """Whether gamma makes no difference, as nothing is smoothed or flagged records leave."""
        return self.flagged_leave or self.name == NO_PROTECTION


NO_PROTECTION = "none"
"""Name of what an unrestricted fit has."""

_BY_NAME = {
    p.name: p
    for p in (
        Protection("none", 1, latent=True),
        Protection("paper", 1, smoothed_copies=True, latent=True),
        Protection("preserving", 2, variance_returns=True),
        Protection("cut", 3, flagged_leave=True),
    )
}

PROTECTIONS = tuple(name for name in _BY_NAME if name != NO_PROTECTION)


def protection_of(name: str) -> Protection:
    """What sets a protection apart, by its name or ``"none"``."""
    return _BY_NAME[name]


def check_protection(name: str) -> None:
    """Refuse a name that no protection has.

    Raises
    ------
    InputError
        If there is none.
    """
    if name not in PROTECTIONS:
        raise InputError(f"protection must be one of {', '.join(PROTECTIONS)}, got {name!r}")


def removed_variance(a_diag: Floats, protection: str) -> Floats:
    """Share of the partial sill that returns as noise of the observation, shape (n,).

    1 - A_ii^2 under ``"preserving"``, else 0.
    """
    if protection_of(protection).variance_returns:
        return np.asarray(1.0 - a_diag**2)
    return np.zeros(a_diag.size)


def informs(A: Floats, protection: str) -> Truths:
    """Which records inform a fit, shape (N,): all, or under ``"cut"`` the unflagged."""
    if protection_of(protection).flagged_leave:
        return np.asarray(A == 1.0)
    return np.ones(A.size, dtype=bool)
