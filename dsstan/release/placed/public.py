"""The public side of a release with synthetic places."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import pandas as pd

from dsstan._version import __version__
from dsstan.copies.places.result import POPULATION, PlacedRelease
from dsstan.covariance.pairs import effect_words
from dsstan.models.predictive import carried_effect
from dsstan.models.result import Fit
from dsstan.release.metadata import FORMAT, described
from dsstan.release.public import MANY, ONE, how_to_read
from dsstan.table.formats.kinds import Format
from dsstan.table.planes import place_columns
from dsstan.table.text.dialect import Dialect

__all__ = ["combining_rule", "placed_metadata", "placed_readme"]

_FULL = """## How to use them

Each copy is a synthetic sample of the population behind the table: no row of it is a record. Never
analyse one copy alone. Fit your model to each of the L copies, keep each estimate q_l and its
squared standard error u_l, and combine them (Raghunathan, Reiter and Rubin 2003, *Multiple
imputation for statistical disclosure limitation*, Journal of Official Statistics 19, 1-16):

- estimate: q = mean of q_l
- variance: T = (1 + 1/L) b - u, with u the mean of u_l and b the variance of q_l: b holds the
  variance of a sample, which u estimates, and what is not known of the population
- where that T is below u + b / L, take the latter; intervals are a little wide so
- interval: q +/- t sqrt(T), Student's t with (L - 1)(T / ((1 + 1/L) b))^2 degrees of freedom, and
  at least (L - 1) / 2

In Python, `dsstan.analysis.combining.combine_full(q, u)` does it.
"""

_MOVED = """
Every record keeps its covariates, and in each copy it has another synthetic place and other
synthetic values there. So the records are those of the table, the combining rule is that of
partially synthetic data, and two copies have no row in common. Who knows a person's covariates may
find them in the copies; the places there are not theirs.
"""

_PLACES = """
Places are drawn from a model of where records are, on square cells: patterns narrower than a cell
of {width:g} ({unit}) are not kept. Do not link the rows to places or persons.
"""


def combining_rule(release: PlacedRelease) -> str | None:
    """The rule that combines estimates from the copies; None where there is one copy."""
    if release.copies < 2:
        return None
    if release.places == POPULATION:
        return "Raghunathan, Reiter and Rubin (2003), fully synthetic data"
    return "Reiter (2003), partially synthetic data"


def placed_metadata(
    release: PlacedRelease,
    tables: Sequence[pd.DataFrame],
    files: list[str],
    *,
    quoted: bool,
    dialect: Dialect,
) -> dict[str, Any]:
    """What ``public/metadata.json`` holds: an allow-list, nothing estimated from the data.

    ``tables`` are the copies as they stand in their files.
    """
    problem, mask = release.problem, release.intensity.mask
    steps = [_step(release, fit) for fit in release.fits]
    last = steps[-1] if steps else None
    sizes = [len(one) for one in release.tables]
    return {
        "format": FORMAT,
        "software": f"dsstan {__version__}",
        "synthesis": "full" if release.places == POPULATION else "partial",
        "synthetic_column": place_columns(problem)[-1] if last is None else problem.response,
        "columns": {str(name): str(dtype) for name, dtype in tables[0].dtypes.items()},
        "index_columns": 0,
        "coordinates": list(problem.coord_names),
        "records": max(sizes),
        "copies": release.copies,
        "files": files,
        "model": None if last is None else last["model"],
        "rounding": _rounding(release),
        "csv_text": "quoted" if quoted else "as it is",
        "combining_rule": combining_rule(release),
        "imputations": None,
        "chain": steps if len(steps) > 1 else None,
        "notes": _notes(release),
        **described(dialect),
        **_weights(release),
        "places": {
            "kind": release.places,
            "number": release.number,
            "records": sizes,
            "cells": mask.n_cells,
            "at": "uniform in a cell" if mask.addresses is None else "public addresses",
        },
    }


def _weights(release: PlacedRelease) -> dict[str, str]:
    name = release.problem.survey_weights
    return {} if name is None or name not in release.tables[0] else {"survey_weights": name}


def _rounding(release: PlacedRelease) -> str:
    return "none" if release.rounding == "none" else "like the input"


def _step(release: PlacedRelease, fit: Fit) -> dict[str, Any]:
    """What is published of one synthetic column."""
    problem = fit.problem
    made = [*problem.coord_names]
    for other in release.fits:
        if other is fit:
            break
        made.append(other.problem.response)
    return {
        "synthetic_column": problem.response,
        "model": {
            "formula": problem.formula,
            "outcome": fit.outcome,
            "spatial_effect": f"Gaussian process, {effect_words(fit)}",
            "distance": problem.distance,
            "unit": problem.unit,
            "protection": fit.protection,
            "effect": carried_effect(fit)[1],
        },
        "rounding": _rounding(release),
        "given": [name for name in made if name in problem.design.formula.columns],
    }


def _notes(release: PlacedRelease) -> list[str]:
    """What must be said of the places and of the models."""
    mask = release.intensity.mask
    notes = [_PLACES.strip().format(width=mask.width, unit=release.problem.unit)]
    if mask.addresses is not None:
        notes.append(
            "Places are public addresses; that one is there says nothing of who lives at it."
        )
    if release.number == "drawn":
        notes.append("The number of rows differs from copy to copy: it is drawn, too.")
    elif release.places == POPULATION:
        notes.append("Every group has as many rows as the table that was modelled.")
    return notes + [fit.public_note for fit in release.fits if fit.public_note]


def placed_readme(
    release: PlacedRelease, files: list[str], format: Format, dialect: Dialect
) -> str:
    """What an analyst needs to know."""
    shown = [f"`{name.replace('`', chr(39))}`" for name in map(str, release.tables[0].columns)]
    population = release.places == POPULATION
    if population:
        title = "Fully synthetic data"
        what = (
            f"{release.copies} synthetic populations: `{files[0]}` to `{files[-1]}`. No row is a "
            f"record, and every column ({', '.join(shown)}) is synthetic."
        )
    else:
        where = place_columns(release.problem)
        values = [f.problem.response for f in release.fits]
        placed, drawn = (
            ", ".join(s for s, c in zip(shown, release.tables[0].columns, strict=True) if c in of)
            for of in (where, values)
        )
        title = "Synthetic places and values" if values else "Synthetic places"
        what = (
            f"{release.copies} copies of one table of {len(release.tables[0])} records: "
            f"`{files[0]}` to `{files[-1]}`. The places ({placed})"
            f"{f' and the values of {drawn}' if values else ''} are synthetic in every copy and "
            "every row; the other columns are as they were collected."
        )
    use = ONE if release.copies < 2 else _FULL if population else MANY
    notes = "".join(f"\n{text}\n" for text in _notes(release))
    what = textwrap.fill(
        f"{what} Rows are in a random order of their own in each copy.", 100, break_on_hyphens=False
    )
    return f"""# {title}

{what}
{"" if population else _MOVED}{how_to_read(format, files[0], dialect)}
{use}
Conclusions hold as far as the models behind the copies do; they are named in `metadata.json`.
Effects that they leave out are weakened in the copies.
{notes}"""
