"""The floor of a release: what every intruder must be left with about every record.

A floor is the p-percent rule of disclosure control: nobody's value may be placed within +/-p% of
the truth with a probability of 95%. It may also be given as an sd on the modelled scale.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, is_number
from dsstan.core.spelling import spelled
from dsstan.table.formulas.formula import ResponseTransform
from dsstan.table.problem import Problem

__all__ = ["QUANTILE_95", "Floor", "FloorLike", "as_floor"]


QUANTILE_95 = 1.96
"""Half the length of a normal 95% interval, in sds."""

ONE_SIDED_95 = 1.645
"""How far a normal 95% interval reaches that is open at one end, in sds."""

LARGEST_LOG_SD = 3.0
"""Largest sd that is taken for a floor on a log scale: a factor of 350 up and down at 95%."""


@dataclass(frozen=True)
class Floor:
    """A floor as it was asked for: one of the two is a number, the other None.

    Attributes
    ----------
    share
        p as a share of the value, 0.1 for ``"10%"``.
    sd
        The least sd, modelled scale.
    """

    share: float | None = None
    sd: float | None = None

    @classmethod
    def parse(cls, given: FloorLike) -> Floor:
        """A floor from an sd such as ``0.05`` or a percentage such as ``"10%"``.

        Raises
        ------
        InputError
            If it is neither: an sd is positive and finite, a percentage between 0 and 100.

        Examples
        --------
        >>> Floor.parse("10%"), Floor.parse(0.05)
        (Floor(share=0.1, sd=None), Floor(share=None, sd=0.05))
        """
        if isinstance(given, Floor):
            return given
        text = given.strip() if isinstance(given, str) else given
        percent = isinstance(text, str) and text.endswith("%")
        try:
            number = float(text.removesuffix("%")) if isinstance(text, str) else text
        except ValueError:
            number = None
        most = 100.0 if percent else np.inf
        if not (is_number(number) and 0 < number < most):
            raise InputError(
                "the floor must be positive and finite: an sd such as 0.05, or a percentage below "
                f'100 such as "10%"; got {given!r}'
            )
        return cls(share=float(number) / 100.0) if percent else cls(sd=float(number))

    def least_sd(self, problem: Problem) -> Floats:
        """The least sd of every record, modelled scale, shape (N,).

        Under the p-percent rule no interval from ``v - p |v|`` to ``v + p |v|``, wherever it is
        centred on the modelled scale, may hold the value with 95%: under log the sd is
        ``log((1 + p) / (1 - p)) / 2 / 1.96``, one number for all records. Where the lower end is
        beyond the transform's domain the upper one decides, at 1.645 sds. Records without a value,
        or of value 0, have 0: nothing lies within p% of them.
        """
        self.check_scale(problem.transform)
        if self.sd is not None:
            return np.full(problem.n_records, self.sd)
        assert self.share is not None
        value = problem.original()
        forward = problem.transform.forward
        with np.errstate(invalid="ignore", divide="ignore"):
            upper = forward(value + self.share * np.abs(value)) - forward(value)
            lower = forward(value) - forward(value - self.share * np.abs(value))
        both = 0.5 * (upper + lower) / QUANTILE_95
        least = np.where(np.isfinite(lower), both, upper / ONE_SIDED_95)
        return np.asarray(np.nan_to_num(least, nan=0.0))

    def check_scale(self, transform: ResponseTransform) -> None:
        """Refuse an sd on a log scale that must have been meant as a percentage.

        Raises
        ------
        InputError
            If it asks that nobody be placed within a factor of hundreds.
        """
        if self.sd is None or transform.name == "identity" or self.sd <= LARGEST_LOG_SD:
            return
        text = f"{self.sd:g}%"
        fix = f"for {text} type {spelled('floor', text)}" if self.sd < 100 else "give a percentage"
        raise InputError(
            f"a floor of {self.sd:g} is an sd on the scale of {transform.name}, which no release "
            f"leaves (at most {LARGEST_LOG_SD:g} is taken): {fix}"
        )

    def meaning(self, values: Floats, transform: ResponseTransform, name: str) -> str:
        """What it asks for about the median of a response, in its own unit. Confidential.

        The median is rounded to two digits, as it may be the value of one record.

        Parameters
        ----------
        values
            Of the response, own scale, shape (N,); missing ones are NaN.
        transform
            To the modelled scale.
        name
            Of the response's column.

        Examples
        --------
        >>> prices = np.array([100_000.0, 200_000.0, 300_000.0])
        >>> Floor.parse("10%").meaning(prices, ResponseTransform("log"), "price")
        'at the median price of 200,000 nobody may be placed within +/-20,000 at 95%'
        """
        middle = np.array([float(f"{np.nanmedian(values):.2g}")])
        if self.share is not None:
            half = self.share * abs(middle[0])
        else:
            half = transform.half_length(middle, QUANTILE_95 * float(self.sd or 0.0))[0]
        return (
            f"at the median {name} of {_short(middle[0])} nobody may be placed within "
            f"+/-{_short(half)} at 95%"
        )

    def __str__(self) -> str:
        return f"{100 * self.share:g}%" if self.share is not None else f"{self.sd:g}"

    @property
    def as_given(self) -> float | str:
        """The sd as a number, the percentage as text."""
        return str(self) if self.sd is None else self.sd


FloorLike = Floor | float | str
"""An sd, or a percentage as text, is taken for a floor."""


def _short(value: float) -> str:
    """A value to two digits."""
    return f"{float(f'{value:.2g}'):,.10g}"


def as_floor(given: FloorLike | None) -> Floor | None:
    """A floor as :meth:`Floor.parse` reads it; None where there is none."""
    return None if given is None else Floor.parse(given)
