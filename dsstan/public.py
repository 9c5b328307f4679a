"""The public side of a release: what is published, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from dsstan._version import __version__
from dsstan.errors import ReleaseError

if TYPE_CHECKING:
    from dsstan.synthesis import Synthesis


def check_public(release: Synthesis) -> None:
    """Refuse a table whose other columns give the response away.

    Raises
    ------
    ReleaseError
        If a numeric column that would be published puts the records in the very
        order of the response, or its reverse.
    """
    table, response = release.problem.table, release.problem.response
    ranks = table[response].rank()
    for name in public_columns(release):
        column = table[name]
        if name == response or not pd.api.types.is_numeric_dtype(column):
            continue
        order = column.rank()
        if column.nunique() > 2 and (order.equals(ranks) or (len(order) + 1 - order).equals(ranks)):
            raise ReleaseError(
                f"column {name!r} is a function of the response {response!r} and would be "
                "published as it is: leave it out of the table before prepare()"
            )


def public_columns(release: Synthesis) -> list[str]:
    """Columns of the copies: all of the table's but the one that holds the weights."""
    weights = release.fit.weights
    withheld = None if weights is None else weights.column
    return [name for name in release.problem.table.columns if name != withheld]


def public_table(release: Synthesis, copy: int) -> pd.DataFrame:
    """One copy as it is published: nothing of pandas' own beside the values."""
    table = release.table(copy)[public_columns(release)].copy()
    table.attrs = {}  # pandas writes them into Parquet
    for name in table.columns:
        # So it does with levels that no record has.
        if isinstance(table[name].dtype, pd.CategoricalDtype):
            table[name] = table[name].cat.remove_unused_categories()
    if isinstance(table.index, pd.CategoricalIndex):
        table.index = table.index.remove_unused_categories()
    return table


def metadata(release: Synthesis, files: list[str]) -> dict[str, Any]:
    """What ``public/metadata.json`` holds: an allow-list, nothing estimated from the data."""
    problem = release.problem
    table = problem.table
    return {
        "format": "dsstan release 1",
        "software": f"dsstan {__version__}",
        "synthesis": "partial",
        "synthetic_column": problem.response,
        "columns": {str(name): str(table[name].dtype) for name in public_columns(release)},
        "coordinates": list(problem.coord_names),
        "records": problem.n_records,
        "copies": release.copies,
        "files": files,
        "model": {
            "formula": problem.formula,
            "spatial_effect": "Gaussian process, exponential correlation",
            "distance": problem.distance,
            "unit": problem.unit,
            "protection": release.fit.protection,
            "effect": release.effect,
        },
        "combining_rule": "Reiter (2003), partially synthetic data" if release.copies > 1 else None,
    }


_MANY = """## How to use them

Never analyse one copy alone. Fit your model to each of the L copies, keep each
estimate q_l and its squared standard error u_l, and combine them (Reiter 2003,
*Inference for partially synthetic, public use microdata sets*, Survey
Methodology 29, 181-188):

- estimate: q = mean of q_l
- variance: T = u + b / L, with u the mean of u_l and b the variance of q_l
- interval: q +/- t sqrt(T), Student's t with (L - 1)(1 + L u / b)^2 degrees of freedom

This is not Rubin's rule for missing data, whose variance is (1 + 1/L) b + u. In
R, `mice::pool.scalar(q, u, rule = "reiter2003")` does it.
"""

_ONE = """## How to use it

There is one copy, so the uncertainty that synthesis adds can't be told from it: the
combining rules of partially synthetic data need at least two. Estimates are of use,
their intervals are too narrow.
"""


def analyst_readme(release: Synthesis, files: list[str]) -> str:
    """What an analyst needs to know."""
    problem = release.problem
    use = _MANY if release.copies > 1 else _ONE
    return f"""# Partially synthetic data

{release.copies} copies of one table of {problem.n_records} records: `{files[0]}` to
`{files[-1]}`. Every column but `{problem.response}` is as it was collected. The values of
`{problem.response}` are synthetic in every copy and every row: draws from a spatial model.
No value was copied from a record.

{use}
Conclusions hold as far as the model behind the copies does; it is named in
`metadata.json`. Interactions and effects it leaves out are weakened in the
copies. Ordinary least squares ignores the spatial correlation that the copies
carry, as it would in the original.
"""
