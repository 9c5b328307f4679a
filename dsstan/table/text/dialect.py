"""How a text file writes a table: what stands between cells, in numbers and for a missing value."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass, field, fields, replace
from typing import NamedTuple

import pandas as pd

from dsstan.core.arrays import Indices
from dsstan.core.errors import InputError, TableError
from dsstan.core.spelling import COMMAND, PYTHON, spelled, surface
from dsstan.table.as_read import AsRead

__all__ = ["PLAIN", "TAB", "Dialect", "DialectError", "Quotes", "TextAsRead"]

TAB = "tab"
"""How a tab is typed at a command."""

SPACES = " \u00a0\u202f"
"""A thousands sign that is any of these is said as the first."""


@dataclass(frozen=True)
class Dialect:
    r"""How a text file writes a table. The copies are written in the same way.

    Attributes
    ----------
    sep
        The sign between cells.
    decimal
        The decimal sign of numbers, ``"."`` or ``","``.
    thousands
        The sign between thousands, such as ``","``; ``" "`` stands for every kind of space. None
        where there is none.
    encoding
        Of the text, such as ``"latin-1"``.
    na
        Texts that mean a missing value, beside the empty cell.

    Raises
    ------
    InputError
        If one is no such sign, or two contradict each other.

    Examples
    --------
    >>> Dialect(sep=";", decimal=",").pattern(whole=False).fullmatch("12,5") is not None
    True
    """

    sep: str = ","
    decimal: str = "."
    thousands: str | None = None
    encoding: str = "utf-8"
    na: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "na", tuple(self.na))
        if not isinstance(self.sep, str) or len(self.sep) != 1 or self.sep in '"\r\n':
            raise InputError(
                f"sep must be one sign, such as ';' ({TAB} for a tab), and is {self.sep!r}"
            )
        if self.decimal not in (".", ","):
            raise InputError(f"decimal must be '.' or ',', and is {self.decimal!r}")
        sign = self.thousands
        one = sign is None or (isinstance(sign, str) and len(sign) == 1 and not sign.isalnum())
        if not one or sign in ("", "-", "+", '"', self.decimal):
            raise InputError(
                "thousands must be one sign such as ',', '.', ' ' or \"'\", other than the decimal "
                f"sign, and is {sign!r}"
            )
        try:
            if not codecs.lookup(self.encoding)._is_text_encoding:
                raise LookupError
        except (LookupError, TypeError, ValueError):
            raise InputError(
                f"encoding must be the name of one, such as utf-8 or latin-1, and is "
                f"{self.encoding!r}"
            ) from None
        if not all(isinstance(text, str) and text for text in self.na):
            raise InputError(f"na must be texts such as 'NA', and is {self.na!r}")

    @property
    def codec(self) -> str:
        """The encoding to open a file with; UTF-8 with or without a byte order mark."""
        utf8 = codecs.lookup(self.encoding).name == "utf-8"
        return "utf-8-sig" if utf8 else self.encoding

    @property
    def grouping(self) -> str:
        """The sign between thousands as a set of a pattern; empty where there is none."""
        if self.thousands is None:
            return ""
        return f"[{re.escape(SPACES if self.thousands in SPACES else self.thousands)}]"

    def pattern(self, *, whole: bool) -> re.Pattern[str]:
        """What a number looks like; one with leading zeros is a code, such as a postcode."""
        groups = rf"|[1-9]\d{{0,2}}(?:{self.grouping}\d{{3}})+" if self.grouping else ""
        integer, sign = rf"(?:0|[1-9]\d*{groups})", re.escape(self.decimal)
        if whole:
            return re.compile(rf"[-+]?{integer}")
        return re.compile(rf"[-+]?(?:{integer}(?:{sign}\d*)?|{sign}\d+)(?:[eE][-+]?\d{{1,3}})?")

    def plain(self, cells: pd.Series) -> pd.Series:
        """Numbers of this dialect as Python writes them."""
        if self.grouping:
            cells = cells.str.replace(self.grouping, "", regex=True)
        return cells if self.decimal == "." else cells.str.replace(",", ".", regex=False)

    def written(self, values: pd.Series, grouped: str = "") -> pd.Series:
        """Numbers as the dialect writes them, with a sign between thousands where there is one."""
        texts = values.map(repr if pd.api.types.is_float_dtype(values.dtype) else str)
        if not grouped and self.decimal == ".":
            return texts.astype(object)

        def one(text: str) -> str:
            integer, dot, rest = text.partition(".")
            if grouped and integer.lstrip("-").isdigit():
                integer = f"{int(integer):,}".replace(",", grouped)
            return integer + (self.decimal + rest if dot else "")

        return texts.map(one).astype(object)

    def differs(self, name: str) -> bool:
        """Whether an option is not that of a plain CSV."""
        return bool(getattr(self, name) != getattr(PLAIN, name))

    def typed(self, other_than: Dialect | None = None) -> str:
        """The options as the reader would type them.

        Those of a plain CSV are left out, but where they stand in place of what was said.
        """
        parts = []
        for name in (one.name for one in fields(self)):
            value, said = getattr(self, name), getattr(other_than or PLAIN, name)
            if value and (self.differs(name) or value != said):
                value = list(value) if isinstance(value, tuple) else value
                parts.append(spelled(name, TAB if value == "\t" and surface() != PYTHON else value))
        if surface() == PYTHON:
            return f"dialect=Dialect({', '.join(parts)}), with Dialect of {__name__}"
        return (" " if surface() == COMMAND else ", ").join(parts)


PLAIN = Dialect()
"""Commas between cells, decimal points, UTF-8."""


class DialectError(TableError):
    """Raised when a file is in another dialect than was said.

    Attributes
    ----------
    found, what
        What it looks like, and that in words.
    """

    def __init__(self, message: str, found: Dialect, what: str) -> None:
        super().__init__(message)
        self.found, self.what = found, what


class Quotes(NamedTuple):
    """Which cells stand in quotes although nothing in them asks for it."""

    header: bool = False
    columns: frozenset[str] = frozenset()
    bare: frozenset[str] = frozenset([""])
    """Texts of a missing value that stand without quotes in these columns too."""


@dataclass(eq=False, repr=False)
class TextAsRead(AsRead):
    """How a table stood in its text file.

    Attributes
    ----------
    dialect
        Of the file.
    newline
        The end of its lines.
    mark
        Whether it began with a byte order mark.
    quotes
        What it quotes beyond need.
    texts
        By column, the cells as they stood, where they would be written otherwise (``1.50``).
    """

    dialect: Dialect = PLAIN
    newline: str = "\n"
    mark: bool = False
    quotes: Quotes = field(default_factory=Quotes)
    texts: dict[str, pd.Series] = field(default_factory=dict)

    def of(self, rows: Indices) -> TextAsRead:
        texts = {
            name: cells.iloc[rows].reset_index(drop=True) for name, cells in self.texts.items()
        }
        return replace(self, texts=texts)
