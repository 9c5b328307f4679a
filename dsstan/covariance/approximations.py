"""Which covariance a fit reckons with: the exact one, or an approximation for many records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from dsstan.core.errors import InputError
from dsstan.covariance.vecchia.neighbours import ORDERINGS

__all__ = [
    "COVARIANCES",
    "EXACT",
    "EXACT_LIMIT",
    "Covariance",
    "PredictiveProcess",
    "Vecchia",
    "choose_covariance",
    "covariance_of",
    "is_approximated",
]

EXACT_LIMIT = 2000
"""Most informing records for which ``"auto"`` takes the exact covariance."""

PLACEMENTS = ("kmeans", "grid")


@dataclass(frozen=True)
class Covariance:
    """The exact covariance, and what the approximations share."""

    name: ClassVar[str] = "exact"

    @property
    def settings(self) -> dict[str, Any]:
        """The name and every setting, for ``settings.json``."""
        return {"name": self.name, **vars(self)}

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> str | tuple[Any, ...]:
        # There is one exact covariance in a process, told by identity.
        return "EXACT" if type(self) is Covariance else (type(self), tuple(vars(self).values()))


EXACT = Covariance()


@dataclass(frozen=True)
class Vecchia(Covariance):
    """Conditionals given the nearest earlier records; see
    :mod:`dsstan.covariance.vecchia.statistics`.

    Attributes
    ----------
    neighbours
        m, from 1: more are nearer to the exact covariance, at a cost between m^2 and m^3.
    ordering
        ``"maxmin"`` or ``"coordinate"``.
    """

    neighbours: int = 15
    ordering: str = "maxmin"

    name: ClassVar[str] = "vecchia"

    def __post_init__(self) -> None:
        _whole("neighbours", self.neighbours)
        if self.ordering not in ORDERINGS:
            raise InputError(
                f"ordering must be one of {', '.join(ORDERINGS)}, got {self.ordering!r}"
            )

    def __str__(self) -> str:
        return f"Vecchia's approximation, {self.neighbours} neighbours, {self.ordering} order"


@dataclass(frozen=True)
class PredictiveProcess(Covariance):
    """The modified predictive process; see :mod:`dsstan.covariance.predictive_process`.

    Attributes
    ----------
    knots
        Number of knots, from 1, and at most that of sites.
    placement
        ``"kmeans"`` puts them where the sites are, ``"grid"`` regularly.
    """

    knots: int = 200
    placement: str = "kmeans"

    name: ClassVar[str] = "predictive_process"

    def __post_init__(self) -> None:
        _whole("knots", self.knots)
        if self.placement not in PLACEMENTS:
            raise InputError(
                f"placement must be one of {', '.join(PLACEMENTS)}, got {self.placement!r}"
            )

    def __str__(self) -> str:
        return f"modified predictive process, {self.knots} knots by {self.placement}"


def is_approximated(covariance: Any) -> bool:
    """Whether a fit with this covariance reckons with an approximation."""
    return isinstance(covariance, Vecchia | PredictiveProcess)


COVARIANCES = ("auto", Covariance.name, Vecchia.name, PredictiveProcess.name)


def choose_covariance(covariance: str | Covariance, n: int) -> Covariance:
    """The covariance asked for; ``"auto"`` is exact up to a number of records, then Vecchia's.

    Parameters
    ----------
    covariance
        ``"auto"``, ``"exact"``, ``"vecchia"`` or ``"predictive_process"``, or an approximation with
        its settings.
    n
        Number of informing records.

    Raises
    ------
    InputError
        If there is none of this name.

    Examples
    --------
    >>> str(choose_covariance("auto", 200)), choose_covariance("auto", 20_000).name
    ('exact', 'vecchia')
    """
    if isinstance(covariance, Covariance):
        return covariance
    if covariance not in COVARIANCES:
        raise InputError(
            f"covariance must be one of {', '.join(COVARIANCES)}, or Vecchia(...) or "
            f"PredictiveProcess(...), got {covariance!r}"
        )
    if covariance == "auto":
        return EXACT if n <= EXACT_LIMIT else Vecchia()
    return {"exact": EXACT, "vecchia": Vecchia(), "predictive_process": PredictiveProcess()}[
        covariance
    ]


def covariance_of(name: str, neighbours: int | None) -> str | Covariance:
    """The covariance as two plain settings say it.

    Parameters
    ----------
    name
        ``"auto"``, ``"exact"``, ``"vecchia"`` or ``"predictive_process"``.
    neighbours
        m of Vecchia's approximation; None for the default.

    Raises
    ------
    InputError
        If there is none of this name, or neighbours are given for another covariance.
    """
    choose_covariance(name, 0)
    if neighbours is None:
        return name
    if name != Vecchia.name:
        raise InputError(
            f'neighbours belong to covariance "vecchia", and it is {name!r}: give both, or neither'
        )
    return Vecchia(neighbours=neighbours)


def _whole(name: str, value: Any) -> None:
    """Refuse what is no whole number from 1 on."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
