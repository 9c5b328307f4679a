"""What ``public/metadata.json`` may hold: one JSON Schema, and what a schema can't say.

``docs/metadata.schema.json`` is :data:`SCHEMA`, written by
``python -m dsstan.release.metadata > docs/metadata.schema.json``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dsstan.core.errors import InputError
from dsstan.table.formats.kinds import FORMAT_NAMES
from dsstan.table.text.dialect import PLAIN, Dialect

FORMAT = "dsstan release 1"

Rule = dict[str, Any]


def _object(kind: str | list[str] = "object", /, **properties: Rule) -> Rule:
    """An object of exactly these keys."""
    return {
        "type": kind,
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _count(least: int, description: str = "") -> Rule:
    return _about(description, type="integer", minimum=least)


def _about(description: str, **rule: Any) -> Rule:
    return ({"description": description} if description else {}) | rule


_COPY = rf"^copy_[0-9]{{3,9}}\.({'|'.join(map(re.escape, FORMAT_NAMES))})$"
_TEXT: Rule = {"type": "string"}
_NAMES: Rule = {"type": "array", "items": _TEXT}
_ROUNDING: Rule = {"enum": ["like the input", "none"]}
_MODEL = _object(
    formula=_TEXT,
    outcome=_TEXT,
    spatial_effect=_TEXT,
    distance={"enum": ["planar", "degrees", "projected"]},
    unit=_TEXT,
    protection=_TEXT,
    effect={"enum": ["w", "w*", "plug"]},
)
_MODEL_OR_NONE = {**_MODEL, "type": ["object", "null"]}
_DIALECT = _object(sep=_TEXT, decimal=_TEXT, thousands=_TEXT, encoding=_TEXT, na=_NAMES)
_STEP = _object(
    synthetic_column=_TEXT,
    model=_MODEL,
    rounding=_ROUNDING,
    given=_about("synthetic columns whose values it was drawn given", **_NAMES),
)
_IMPUTATIONS = _object(["object", "null"], count=_count(2), copies_each=_count(2))
_IMPUTATIONS["properties"]["drawn"] = _about(
    "there where every record was drawn in each imputation, not the missing alone",
    enum=["every record"],
)
_OPTIONAL = {
    "dialect": _about(
        "how the CSV files are written, where that is not plain CSV in UTF-8: the sign between "
        "cells, the decimal sign, the sign between thousands (empty where there is none), the "
        "encoding, and the texts of a missing value",
        **_DIALECT,
    ),
    "places": _about(
        "there where places are synthetic, and rows in an order of their own in each copy: how "
        "they were drawn, how many rows each copy has, and the number of cells of the model",
        **_object(
            kind={"enum": ["moved", "population"]},
            number={"enum": ["kept", "drawn"]},
            records={"type": "array", "minItems": 1, "items": _count(0)},
            cells=_count(1),
            at={"enum": ["uniform in a cell", "public addresses"]},
        ),
    ),
    "survey_weights": _about(
        "the column that says how many members of the population each record stands for, where "
        "there is one",
        **_TEXT,
    ),
}
SCHEMA: Rule = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "public/metadata.json of a dsstan release",
    **_object(
        format={"enum": [FORMAT]},
        software=_TEXT,
        synthesis={"enum": ["partial", "full"]},
        synthetic_column=_TEXT,
        columns=_about(
            "type of each column, in the order of the columns",
            type="object",
            minProperties=1,
            additionalProperties=_TEXT,
        ),
        index_columns=_count(0, "how many columns of a CSV, before all others, are the index"),
        coordinates={**_NAMES, "minItems": 2, "maxItems": 2},
        records=_count(1),
        copies=_count(1),
        files={
            "type": "array",
            "minItems": 1,
            "items": {**_TEXT, "pattern": _COPY},
        },
        model=_about("null where no column but the places is modelled", **_MODEL_OR_NONE),
        rounding=_ROUNDING,
        csv_text={"enum": ["as it is", "quoted"]},
        combining_rule={"type": ["string", "null"]},
        imputations=_about(
            "where the response was missing in some records: the copies are in this order, those "
            "of the first imputation first",
            **_IMPUTATIONS,
        ),
        chain=_about(
            "where several columns are synthetic: each with its model, in the order in which they "
            "were drawn",
            type=["array", "null"],
            minItems=2,
            items=_STEP,
        ),
        notes=_about(
            "what an analyst must know of the models beyond the common text, in Markdown", **_NAMES
        ),
    ),
}
SCHEMA["properties"] |= _OPTIONAL
"""Every key but the last is required, and no other is allowed."""


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
    wrong = _problem(content, SCHEMA)
    if wrong is not None:
        return wrong
    if not len(content["files"]) == content["copies"] == len(set(content["files"])):
        return "does not name each copy once"
    made = synthetic_columns(content)
    if len(set(made)) != len(made) or made[-1] != content["synthetic_column"]:
        return "does not name each synthetic column once, in order"
    imputed = content["imputations"]
    if imputed and imputed["count"] * imputed["copies_each"] != content["copies"]:
        return "names imputations that do not make up the copies"
    if not set(made) <= set(content["columns"]):
        return "names a synthetic column that is not among the columns"
    if content.get("survey_weights", made[-1]) not in content["columns"]:
        return "names survey weights that are not among the columns"
    sizes = content["places"]["records"] if "places" in content else None
    if sizes and not (len(sizes) == content["copies"] and max(sizes) == content["records"]):
        return "names other numbers of rows than the copies have"
    if content["model"] is None and "places" not in content:
        return "names no model of its synthetic column"
    try:
        dialect_of(content)
    except InputError:
        return "names a dialect of CSV that there is not"
    return None


def dialect_of(content: Mapping[str, Any]) -> Dialect:
    """How the CSV files are written.

    Raises InputError if they can't be written so.
    """
    stated = content.get("dialect")
    if stated is None:
        return PLAIN
    return Dialect(**{**stated, "thousands": stated["thousands"] or None})


def described(dialect: Dialect) -> dict[str, Any]:
    """What the metadata say of a dialect; nothing of plain CSV."""
    if dialect == PLAIN:
        return {}
    return {
        "dialect": {**asdict(dialect), "thousands": dialect.thousands or "", "na": [*dialect.na]}
    }


def _problem(content: Any, rule: Rule) -> str | None:
    """The first key that is missing, unknown or of a wrong value."""
    if not isinstance(content, dict):
        return "does not hold one object"
    for key in rule["required"]:
        if key not in content:
            return f"lacks the key {key!r}"
    if not content.keys() <= rule["properties"].keys():
        return "holds a key that is not allowed"
    for key, of_key in rule["properties"].items():
        if key in content and not _allowed(content[key], of_key):
            return f"holds a value of {key!r} that is not allowed"
    return None


def _allowed(value: Any, rule: Rule) -> bool:
    """Whether a value meets a rule; of JSON Schema, what :data:`SCHEMA` uses."""
    if "enum" in rule:
        return isinstance(value, str) and value in rule["enum"]
    kinds = rule["type"]
    match value:
        case None:
            return "null" in kinds
        case bool():
            return False
        case int():
            return "integer" in kinds and value >= rule["minimum"]
        case str():
            return "string" in kinds and bool(re.fullmatch(rule.get("pattern", "(?s:.*)"), value))
        case list():
            fits = rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", len(value))
            return "array" in kinds and fits and all(_allowed(v, rule["items"]) for v in value)
        case dict() if "properties" in rule:
            return _problem(value, rule) is None
        case dict():
            fits = "object" in kinds and len(value) >= rule["minProperties"]
            return fits and all(_allowed(v, rule["additionalProperties"]) for v in value.values())
    return False


if __name__ == "__main__":
    print(json.dumps(SCHEMA, indent=2))
