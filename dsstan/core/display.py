"""How a public result shows itself: one line as ``repr``, a table printed, HTML in a notebook."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape

import pandas as pd

WIDTH = 88
"""Columns of a printed result: wider tables are printed in pieces, longer sentences in lines."""


def per_cent(share: float) -> str:
    """A share in whole per cent; none and all only where it is none or all.

    Examples
    --------
    >>> per_cent(0.123), per_cent(0.0), per_cent(0.002), per_cent(0.998)
    ('12%', '0%', '<1%', '>99%')
    """
    whole = f"{100.0 * share:.0f}%"
    if share in (0.0, 1.0) or whole not in ("0%", "100%"):
        return whole
    return "<1%" if whole == "0%" else ">99%"


def chance_per_cent(chance: float) -> str:
    """A chance in per cent to two digits, however small.

    Examples
    --------
    >>> chance_per_cent(0.123), chance_per_cent(0.00012), chance_per_cent(1.0)
    ('12%', '0.012%', '100%')
    """
    if chance >= 0.995:
        return per_cent(chance)
    return f"{float(f'{100.0 * chance:.2g}'):g}%"


def four_digits(value: float) -> str:
    """A number to four significant digits."""
    return f"{value:.4g}"


@dataclass(frozen=True)
class Part:
    """A table with the words above it.

    Attributes
    ----------
    table
        Shown with its index.
    title
        Above the table; none where empty.
    digits
        How a float is shown.
    """

    table: pd.DataFrame
    title: str = ""
    digits: Callable[[float], str] = four_digits

    def text(self) -> str:
        """For a terminal."""
        body = self.table.to_string(float_format=self.digits, line_width=WIDTH)
        return f"\n{_wrapped(self.title)}\n{body}\n" if self.title else body

    def html(self) -> str:
        """For a notebook."""
        body = self.table.to_html(float_format=self.digits, border=0)
        return f"<p>{escape(self.title)}</p>{body}" if self.title else body


@dataclass(frozen=True)
class Card:
    """What a result shows below its one line: facts with their names, then tables and sentences.

    Nothing in it may be the value of a single record.
    """

    facts: tuple[tuple[str, str], ...] = ()
    blocks: tuple[Part | str, ...] = ()


class Shown:
    """A result that shows itself; a class states its line and, if it has more to say, its card."""

    def _line(self) -> str:
        """The result in one line. Quick: debuggers ask for it."""
        raise NotImplementedError

    def _card(self) -> Card:
        """What stands below the line."""
        return Card()

    def __repr__(self) -> str:
        return self._line()

    def __str__(self) -> str:
        card = self._card()
        width = max((len(name) for name, _ in card.facts), default=0)
        blocks = [
            _wrapped(self._line()),
            *(f"  {name:{width}}  {value}" for name, value in card.facts),
            *(_wrapped(b) if isinstance(b, str) else b.text() for b in card.blocks),
        ]
        return "\n".join(blocks).rstrip("\n")

    def _repr_html_(self) -> str:
        card = self._card()
        rows = "".join(
            f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
            f'<td style="text-align:left">{escape(value)}</td></tr>'
            for name, value in card.facts
        )
        blocks = [
            f"<p><strong>{escape(self._line())}</strong></p>",
            f"<table><tbody>{rows}</tbody></table>" if rows else "",
            html_of(card.blocks),
        ]
        return f"<div>{''.join(blocks)}</div>"


def html_of(blocks: Iterable[Part | str]) -> str:
    """Tables and sentences for a notebook or a page."""
    return "".join(f"<p>{escape(b)}</p>" if isinstance(b, str) else b.html() for b in blocks)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_on_hyphens=False)
