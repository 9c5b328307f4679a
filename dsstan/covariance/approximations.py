"""The covariances by name, and which one a fit has."""

from __future__ import annotations

from dsstan.core.errors import InputError
from dsstan.covariance.base import Covariance
from dsstan.covariance.exact import EXACT, Exact
from dsstan.covariance.process.approximation import PredictiveProcess
from dsstan.covariance.vecchia.approximation import Vecchia
from dsstan.covariance.vecchia.neighbours import NEIGHBOURS, OF_SMOOTH

__all__ = [
    "COVARIANCES",
    "EXACT",
    "EXACT_LIMIT",
    "Covariance",
    "PredictiveProcess",
    "Vecchia",
    "choose_covariance",
    "covariance_of",
]

EXACT_LIMIT = 2000
"""Most informing records for which ``"auto"`` takes the exact covariance."""


COVARIANCES = ("auto", Exact.name, Vecchia.name, PredictiveProcess.name)


def choose_covariance(
    covariance: str | Covariance, n: int, cov_model: str = "exponential"
) -> Covariance:
    """The covariance asked for; ``"auto"`` is exact up to a number of records, then Vecchia's.

    Parameters
    ----------
    covariance
        ``"auto"``, ``"exact"``, ``"vecchia"`` or ``"predictive_process"``, or an approximation with
        its settings.
    n
        Number of informing records.
    cov_model
        Correlation function, by whose smoothness Vecchia's neighbours are chosen.

    Raises
    ------
    InputError
        If there is none of this name.

    Examples
    --------
    >>> str(choose_covariance("auto", 200)), choose_covariance("auto", 20_000).name
    ('exact', 'vecchia')
    >>> [choose_covariance("vecchia", 1, name).neighbours for name in ("exponential", "matern52")]
    [15, 50]
    """
    if isinstance(covariance, Covariance):
        return covariance
    if covariance not in COVARIANCES:
        raise InputError(
            f"covariance must be one of {', '.join(COVARIANCES)}, or Vecchia(...) or "
            f"PredictiveProcess(...), got {covariance!r}"
        )
    vecchia = Vecchia(OF_SMOOTH.get(cov_model, NEIGHBOURS))
    if covariance == "auto":
        return EXACT if n <= EXACT_LIMIT else vecchia
    return {"exact": EXACT, "vecchia": vecchia, "predictive_process": PredictiveProcess()}[
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
