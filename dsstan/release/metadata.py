"""What ``public/metadata.json`` may hold: the checks of ``docs/metadata.schema.json``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["FORMAT", "check_metadata", "synthetic_columns"]

FORMAT = "dsstan release 1"

_FILE = re.compile(r"copy_[0-9]{3,9}\.(csv|parquet)")


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _names(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _one_of(*choices: str) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and value in choices


_MODEL: dict[str, Callable[[Any], bool]] = {
    "formula": _text,
    "outcome": _text,
    "spatial_effect": _text,
    "distance": _one_of("planar", "degrees", "projected"),
    "unit": _text,
    "protection": _text,
    "effect": _one_of("w", "w*", "plug"),
}

_KEYS: dict[str, Callable[[Any], bool]] = {
    "format": _one_of(FORMAT),
    "software": _text,
    "synthesis": _one_of("partial"),
    "synthetic_column": _text,
    "columns": lambda v: isinstance(v, dict) and len(v) > 0 and all(map(_text, v.values())),
    "index_columns": lambda v: _count(v, 0),
    "coordinates": lambda v: _names(v) and len(v) == 2,
    "records": lambda v: _count(v, 1),
    "copies": lambda v: _count(v, 1),
    "files": lambda v: _names(v) and len(v) > 0 and all(_FILE.fullmatch(name) for name in v),
    "model": lambda v: _problem(v, _MODEL) is None,
    "rounding": _one_of("like the input", "none"),
    "csv_text": _one_of("as it is", "quoted"),
    "combining_rule": lambda v: v is None or _text(v),
    "imputations": lambda v: v is None or _problem(v, _IMPUTATIONS) is None,
    "chain": lambda v: v is None or _steps(v),
    "notes": _names,
}

_IMPUTATIONS: dict[str, Callable[[Any], bool]] = {
    "count": lambda v: _count(v, 2),
    "copies_each": lambda v: _count(v, 2),
}

_STEP: dict[str, Callable[[Any], bool]] = {
    "synthetic_column": _text,
    "model": lambda v: _problem(v, _MODEL) is None,
    "rounding": _one_of("like the input", "none"),
    "given": _names,
}


def _steps(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) >= 2
        and all(_problem(step, _STEP) is None for step in value)
    )


def synthetic_columns(content: Mapping[str, Any]) -> tuple[str, ...]:
    """Every synthetic column of checked metadata, in the order in which they were drawn."""
    chain = content["chain"]
    if chain is None:
        return (content["synthetic_column"],)
    return tuple(step["synthetic_column"] for step in chain)


def check_metadata(content: Any) -> str | None:
    """What is wrong with the content of a ``metadata.json``; None where nothing is.

    Beyond the schema, the files must be as many as the copies, each once, and the synthetic
    column one of the columns.
    """
    wrong = _problem(content, _KEYS)
    if wrong is not None:
        return wrong
    if len(content["files"]) != content["copies"] or len(set(content["files"])) != len(
        content["files"]
    ):
        return "does not name each copy once"
    made = synthetic_columns(content)
    if len(set(made)) != len(made) or made[-1] != content["synthetic_column"]:
        return "does not name each synthetic column once, in order"
    imputed = content["imputations"]
    if imputed and imputed["count"] * imputed["copies_each"] != content["copies"]:
        return "names imputations that do not make up the copies"
    if not set(made) <= set(content["columns"]):
        return "names a synthetic column that is not among the columns"
    return None


def _problem(content: Any, keys: Mapping[str, Callable[[Any], bool]]) -> str | None:
    """The first key that is missing, unknown or of a wrong value."""
    if not isinstance(content, dict):
        return "does not hold one object"
    for key in keys:
        if key not in content:
            return f"lacks the key {key!r}"
    if len(content) > len(keys):
        return "holds a key that is not allowed"
    for key, fine in keys.items():
        if not fine(content[key]):
            return f"holds a value of {key!r} that is not allowed"
    return None
