"""Decay in time and share of the groups, which a fit holds; and models that can't have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsstan.core.errors import InputError, is_number
from dsstan.core.spelling import spelled
from dsstan.covariance.approximations import EXACT_LIMIT, Covariance, choose_covariance
from dsstan.covariance.base import SpatialModel
from dsstan.covariance.most_likely import Ties, most_likely
from dsstan.table.problem import Problem
from dsstan.table.records.structure import Structure

if TYPE_CHECKING:
    from dsstan.models.result import Fit

__all__ = ["check_structure", "check_ties", "held_ties", "only_in_fit"]


def _named(structure: Structure) -> str:
    """What a structure consists of, as the user typed it."""
    time = [] if structure.time is None else [spelled("time", structure.time)]
    group = [] if structure.group is None else [f"(1 | {structure.group})"]
    return " and ".join([*time, *group])


def only_in_fit(problem: Problem) -> None:
    """Refuse a time and groups where the model has none.

    Raises InputError if the problem has either.
    """
    if problem.structure is not None:
        raise InputError(
            f"{_named(problem.structure)} is for the Gaussian model of dsstan.fit alone, and this "
            "fit is of another: prepare the table without"
        )


def check_structure(problem: Problem, covariance: str | Covariance, cov_model: str) -> None:
    """Refuse a covariance that has no time and groups, where the problem has them.

    Raises InputError if so.
    """
    structure = problem.structure
    if structure is None:
        return
    informing = int(problem.observed.sum())
    if choose_covariance(covariance, informing).approximate:
        why = f"{spelled('covariance', str(covariance))} has neither"
        if covariance == "auto":
            why = (
                f"{informing:,} records inform the fit, and {spelled('covariance', 'auto')} is "
                f"exact up to {EXACT_LIMIT:,}"
            )
        raise InputError(
            f"{_named(structure)} needs the exact covariance: {why}. Ask for "
            f"{spelled('covariance', 'exact')}, whose cost grows with the cube of the records, or "
            "take fewer records"
        )
    if structure.times is not None and cov_model != "exponential":
        raise InputError(
            f"{_named(structure)} is exponential in space and in time, and cov_model is "
            f"{cov_model!r}: leave cov_model out, or the time"
        )


def check_ties(time_decay: float | None, group_share: float | None) -> None:
    """Refuse values that are none of a decay in time or a share.

    Raises InputError if so.
    """
    if time_decay is not None and not (is_number(time_decay) and 0.0 <= time_decay < float("inf")):
        raise InputError("time_decay must be a number from 0, in the inverse of the time's unit")
    if group_share is not None and not (is_number(group_share) and 0.0 <= group_share < 1.0):
        raise InputError("group_share must be a number from 0 to below 1")


def held_ties(
    model: SpatialModel,
    start: Fit | None,
    time_decay: float | None,
    group_share: float | None,
    *,
    ranges: tuple[tuple[float, float], tuple[float, float]],
    own: bool,
) -> Ties:
    """The values that a fit holds: as given, else those of ``start``, else the most likely ones.

    Parameters
    ----------
    model
        Without smoothing they are the most likely ones of its informing records.
    start
        Fit that this one starts from.
    time_decay, group_share
        As given.
    ranges
        Of phi and r.
    own
        Whether the fit must not take them from ``start``, which knows records that left it.

    Raises
    ------
    InputError
        If one is given without a time or groups, or another than that of ``start``.
    """
    structure, given = model.problem.structure, (time_decay, group_share)
    check_ties(*given)
    has = (False, False) if structure is None else (bool(structure.time), bool(structure.group))
    needs = ("a time: prepare the table with time=", "groups: add (1 | column) to the formula")
    for name, value, there, need in zip(
        ("time_decay", "group_share"), given, has, needs, strict=True
    ):
        former = None if start is None or own else getattr(start, name)
        if value is not None and not there:
            raise InputError(f"{name} needs {need}")
        if value is not None and former is not None and value != former:
            raise InputError(
                f"{name} is {value:g} and start holds {former:g}: leave {name} out, or give both "
                "fits the same"
            )
    if structure is None:
        return Ties()
    if start is not None and not own:
        time_decay = start.time_decay if time_decay is None else time_decay
        group_share = start.group_share if group_share is None else group_share
    if (has[0] and time_decay is None) or (has[1] and group_share is None):
        asked = model.model_with(time_decay=time_decay, group_share=group_share)
        return most_likely(asked, *ranges)
    return Ties(time_decay, group_share)
