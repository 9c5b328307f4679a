"""Column names that Python cannot read, and what stands for them while a formula is taken apart.

formulaic evaluates pieces of a formula as Python, which reads neither ``floor area (m²)`` nor
``class``. Each such name between backticks is a word of letters and figures there.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["Names", "stood_in"]

_QUOTED = re.compile(r"`([^`]*)`")
INTERCEPT = "Intercept"
"""The name of a term; a column of that name is written in backticks."""


@dataclass(frozen=True)
class Names:
    """The words that stand for column names.

    Attributes
    ----------
    names
        The column names, in the order of their words.
    stem
        What each word begins with; its number follows.
    """

    names: tuple[str, ...] = ()
    stem: str = "column"

    def word(self, name: str) -> str:
        """What stands for a column in a formula that formulaic reads."""
        return f"{self.stem}_{self.names.index(name)}_" if name in self.names else name

    def column(self, word: str) -> str:
        """The column that a word stands for, or the word itself."""
        found = re.fullmatch(rf"{self.stem}_(\d+)_", word)
        return self.names[int(found[1])] if found else word

    def written(self, text: str) -> str:
        """A piece of a formula with the names in backticks."""
        return re.sub(rf"`?{self.stem}_(\d+)_`?", lambda m: f"`{self.names[int(m[1])]}`", text)

    def term(self, text: str) -> str:
        """A term as a result shows it: a column that stands alone has no backticks."""

        def bare(found: re.Match[str]) -> str:
            name = self.names[int(found[1])]
            return f"`{name}`" if name == INTERCEPT else name

        return self.written(re.sub(rf"(?<![^:]){self.stem}_(\d+)_(?![^:\[])", bare, text))


def is_plain(name: str) -> bool:
    """Whether Python reads the name as it is; what it keeps for itself is left to be refused."""
    if name.startswith("__"):
        return name.endswith("__")
    same = unicodedata.normalize("NFKC", name) == name  # Python reads a ligature as letters
    return name.isidentifier() and same and not keyword.iskeyword(name)


def stood_in(text: str, functions: Collection[str]) -> tuple[str, Names]:
    """A formula with a word for each quoted name that Python cannot read, and the names.

    Parameters
    ----------
    text
        The formula.
    functions
        Names that formulas call, which a column may have too.

    Examples
    --------
    >>> stood_in("log(`price (€)`) ~ `x`", ["log"])
    ('log( column_0_ ) ~ `x`', Names(names=('price (€)',), stem='column'))
    """
    reserved = {*functions, INTERCEPT}
    names = tuple(
        name
        for name in dict.fromkeys(_QUOTED.findall(text))
        if name.strip() and (not is_plain(name) or name in reserved)
    )
    stem = "column"
    while stem in text:
        stem += "_"
    found = Names(names, stem)

    def word(match: re.Match[str]) -> str:
        return f" {found.word(match[1])} " if match[1] in names else match[0]

    return _QUOTED.sub(word, text), found
