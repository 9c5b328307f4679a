"""The public side of a release: what is published, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

from dsstan._version import __version__
from dsstan.copies.published import held_columns, public_columns, synthetic
from dsstan.copies.result import Synthesis
from dsstan.covariance.pairs import effect_words
from dsstan.release.metadata import FORMAT, described
from dsstan.table.columns import plain_index
from dsstan.table.formats.kinds import FORMATS, Format
from dsstan.table.text.dialect import PLAIN, Dialect
from dsstan.table.weights_in_formula import weights_missed


def public_table(release: Synthesis, copy: int) -> pd.DataFrame:
    """One copy as it is published: nothing of pandas' own beside the values.

    Of a table that is read by row groups the columns in memory.
    """
    table = without_traces(release.table(copy)[held_columns(release)])
    for step in release.steps:
        if step.whole_numbers:
            table[step.problem.response] = table[step.problem.response].astype(np.int64)
    return table


def without_traces(table: pd.DataFrame) -> pd.DataFrame:
    """A table without what pandas keeps beside its values: attributes, levels that no row has."""
    table = table.copy()
    # pandas writes these into Parquet, and levels that no record has.
    table.attrs = {}
    table.columns.name = None
    for name in table.columns:
        dtype = table[name].dtype
        if isinstance(dtype, pd.CategoricalDtype):
            table[name] = table[name].cat.remove_unused_categories()
        elif isinstance(dtype, pd.ArrowDtype) and hasattr(dtype.pyarrow_dtype, "value_type"):
            table[name] = (
                table[name].astype(object).astype(pd.ArrowDtype(dtype.pyarrow_dtype.value_type))
            )
    if isinstance(table.index, pd.CategoricalIndex):
        table.index = table.index.remove_unused_categories()
    elif isinstance(table.index, pd.MultiIndex):
        table.index = table.index.remove_unused_levels()
    return table


def public_types(release: Synthesis) -> dict[str, str]:
    """Type of each column of the copies, as pandas names it."""
    types = {name: str(dtype) for name, dtype in public_table(release, 0).dtypes.items()}
    if release.problem.by_row_groups:
        types = release.problem.types | {name: types[name] for name in synthetic(release)}
    return {str(name): types[name] for name in public_columns(release)}


def metadata(
    release: Synthesis,
    files: list[str],
    *,
    quoted: bool = False,
    dialect: Dialect = PLAIN,
) -> dict[str, Any]:
    """What ``public/metadata.json`` holds: an allow-list, nothing estimated from the data."""
    problem = release.problem
    table = problem.table
    return {
        "format": FORMAT,
        "software": f"dsstan {__version__}",
        "synthesis": "partial",
        "synthetic_column": problem.response,
        "columns": public_types(release),
        "index_columns": 0 if plain_index(table.index) else table.index.nlevels,
        "coordinates": list(problem.coord_names),
        "records": problem.n_records,
        "copies": release.copies,
        "files": files,
        "model": model_of(release),
        "rounding": rounding_of(release),
        "csv_text": "quoted" if quoted else "as it is",
        "combining_rule": combining_rule(release),
        "imputations": _imputations(release),
        "chain": chain_of(release),
        "notes": _notes(release),
        **described(dialect),
        **({} if problem.survey_weights is None else {"survey_weights": problem.survey_weights}),
    }


def model_of(release: Synthesis) -> dict[str, str]:
    """What is published of the model behind one synthetic column."""
    problem, fit = release.problem, release.fit
    return {
        "formula": problem.formula,
        "outcome": fit.outcome,
        "spatial_effect": f"Gaussian process, {effect_words(fit)}",
        "distance": problem.distance,
        "unit": problem.unit,
        "protection": release.protection,
        "effect": release.effect,
    }


def chain_of(release: Synthesis) -> list[dict[str, Any]] | None:
    """What is published of each synthetic column, where there are several."""
    if len(release.steps) == 1:
        return None
    return [
        {
            "synthetic_column": step.problem.response,
            "model": model_of(step),
            "rounding": rounding_of(step),
            "given": given,
        }
        for step, given in zip(release.steps, _given(release), strict=True)
    ]


def _given(release: Synthesis) -> list[list[str]]:
    """Of each synthetic column, the synthetic columns that it was drawn given."""
    found, made = [], list[str]()
    for step in release.steps:
        found.append([name for name in made if name in step.problem.design.formula.columns])
        made.append(step.problem.response)
    return found


_NOISE = (
    "Values also carry independent noise of mean 0 on the scale of the model, drawn afresh in each "
    "copy. The combining rule counts it, and intervals of a regression are as much wider. "
    "Estimates of spread (variances, quantiles, the nugget of a variogram) take it for variation "
    "of the data, and a mean of values that were modelled as logarithms is a little too large."
)


def _survey_note(release: Synthesis) -> list[str]:
    """How the survey weights are to be used, where there are any."""
    name = release.problem.survey_weights
    if name is None:
        return []
    shown = name.replace("`", "'")
    response = json.dumps(release.problem.response.replace("`", "'"))
    model = (
        f"The models of the copies leave `{shown}` out, so what ties the synthetic values to it "
        "beyond the other columns is lost, and weighted estimates may be biased."
        if any(weights_missed(step.problem) for step in release.steps)
        else f"The model of the copies knows `{shown}`."
    )
    return [
        f"`{shown}` holds survey weights: how many members of the population a record stands for. "
        f"For estimates of the population weight every copy by it, in R with `svydesign(ids = ~1, "
        f"weights = ~{shown})` of the package survey and combine as ever, in Python with "
        f"`pool(read_release(folder), weighted_mean({response}, {json.dumps(shown)}))` of "
        f"`dsstan.analysis` (`pooling`, `survey`). {model}"
    ]


_HOUSEHOLDS = "Each record is a household, whatever the number of its members."


def _notes(release: Synthesis) -> list[str]:
    """What must be said of weights, of the models, and of noise, beyond the common text."""
    notes = _survey_note(release)
    notes += [] if release.problem.households is None else [_HOUSEHOLDS]
    notes += [step.fit.public_note for step in release.steps if step.fit.public_note]
    return notes if release.noise is None else [*notes, _NOISE]


def rounding_of(release: Synthesis) -> str:
    """What is published of how the copies are rounded."""
    return "none" if release.rounding is None else "like the input"


def combining_rule(release: Synthesis) -> str | None:
    """The rule that combines estimates from the copies; None where there is one copy."""
    if release.hide_gaps:
        return (
            "Raghunathan, Reiter and Rubin (2003), fully synthetic data, with copies in two stages"
        )
    if release.imputation is not None:
        return "Reiter (2004), partially synthetic data with imputed values"
    return "Reiter (2003), partially synthetic data" if release.copies > 1 else None


def _imputations(release: Synthesis) -> dict[str, Any] | None:
    """How many imputations of a missing response, and copies of each."""
    labels = release.imputation
    if labels is None:
        return None
    count = int(labels.max())
    made = {"count": count, "copies_each": release.copies // count}
    return made | ({"drawn": "every record"} if release.hide_gaps else {})


MANY = """## How to use them

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

ONE = """## How to use it

There is one copy, so the uncertainty that synthesis adds can't be estimated: the
combining rules of partially synthetic data need at least two. Estimates are of use,
their intervals are too narrow.
"""


_NESTED = """## How to use them

The response was missing in some records. It was imputed {M} times, and {R} copies were
drawn from each imputation: copies 1 to {R} from the first, and so on. Fit your model to each
of the L = {M} x {R} copies and combine the estimates (Reiter 2004, *Simultaneous use of
multiple imputation for missing data and disclosure limitation*, Survey Methodology 30,
235-242):

- estimate: q = mean of all
- b: variance of the {M} means, one an imputation
- w: mean of the {M} variances within an imputation
- variance: T = u + (1 + 1/{M}) b - w / {R}, with u the mean of the squared standard errors
- interval: q +/- t sqrt(T), Student's t with
  T^2 / [((1 + 1/{M}) b)^2 / ({M} - 1) + (w / {R})^2 / ({M} ({R} - 1))] degrees of freedom

Where that T is below u + w / ({M} x {R}) take the latter, with
{M} ({R} - 1)(1 + {M} x {R} u / w)^2 degrees of freedom, and never fewer degrees of freedom
than {M} - 1: next to 0 the estimate of T is worth nothing.

In Python, `dsstan.combine(q, u, imputation=release.imputation)` does it, with `release` from
`dsstan.release.reading.read_release`.
"""


_HIDDEN = """## How to use them

The response was missing in some records. Every record was drawn {M} times, not those alone, so
that the copies do not show which they are, and {R} copies were drawn from each of the {M} tables:
copies 1 to {R} from the first, and so on. Fit your model to each of the L = {M} x {R} copies and
combine the estimates (Raghunathan, Reiter and Rubin 2003, *Multiple imputation for statistical
disclosure limitation*, Journal of Official Statistics 19, 1-16, with the second stage taken off):

- estimate: q = mean of all
- b: variance of the {M} means, one a table
- w: mean of the {M} variances within a table
- variance: T = (1 + 1/{M}) b - w / {R} - u, with u the mean of the squared standard errors
- interval: q +/- t sqrt(T), Student's t with
  T^2 / [((1 + 1/{M}) b)^2 / ({M} - 1) + (w / {R})^2 / ({M} ({R} - 1))] degrees of freedom

Where that T is below u + b / {M} take the latter, and never fewer degrees of freedom than
({M} - 1) / 2.

In Python, `dsstan.combine(q, u, imputation=release.imputation, hide_gaps=release.hide_gaps)` does
it, with `release` from `dsstan.release.reading.read_release`.
"""


def _order(release: Synthesis) -> list[str]:
    """Of several synthetic columns, what each was drawn given."""
    if len(release.steps) == 1:
        return []
    lines = []
    for name, used in zip(synthetic(release), _given(release), strict=True):
        given = ", ".join(f"`{other}`" for other in used)
        how = f"given the synthetic values of {given}" if used else "by itself"
        lines.append(f"`{name}` was drawn {how}.")
    return lines


def how_to_use(release: Synthesis) -> str:
    """The part of the README that says how to combine."""
    made = _imputations(release)
    if made is not None:
        text = _HIDDEN if release.hide_gaps else _NESTED
        return text.format(M=made["count"], R=made["copies_each"])
    return MANY if release.copies > 1 else ONE


def how_to_read(format: Format, first: str, dialect: Dialect) -> str:
    """How to read files that are no plain CSV, in R and in pandas; empty for those that are."""
    if not format.is_text:
        calls = (call.format(json.dumps(first)) for call in (format.in_python, format.in_r))
        lines = "".join(f"    {call}\n" for call in calls)
        return f"\nEach file is {format.what}. To read one, in Python or in R:\n\n{lines}"
    if dialect == PLAIN:
        return ""
    na = ", ".join(json.dumps(text) for text in ("", *dialect.na))
    sep, decimal = json.dumps(dialect.sep), json.dumps(dialect.decimal)
    grouped = f", thousands={json.dumps(dialect.thousands)}" if dialect.thousands else ""
    note = ""
    if dialect.thousands:
        note = (
            f"R keeps numbers with `{dialect.thousands}` between thousands as text: take it out.\n"
        )
    encoding = json.dumps(dialect.encoding)
    return f"""
The files are written as the table was. To read one:

    pandas.read_csv({json.dumps(first)}, sep={sep}, decimal={decimal}{grouped},
                    encoding={encoding}, na_values=[{na}], keep_default_na=False)
    read.table({json.dumps(first)}, header = TRUE, sep = {sep}, dec = {decimal},
               fileEncoding = {encoding}, na.strings = c({na}), quote = "\\"", comment.char = "")

{note}"""


def analyst_readme(
    release: Synthesis, files: list[str], format: Format = FORMATS[0], dialect: Dialect = PLAIN
) -> str:
    """What an analyst needs to know."""
    problem = release.problem
    named = [f"`{name.replace('`', chr(39))}`" for name in synthetic(release)]
    response = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
    order = "".join(f"\n{line}" for line in _order(release))
    use = how_to_use(release)
    note = "".join(f"\n{text}\n" for text in _notes(release))
    return f"""# Partially synthetic data

{release.copies} copies of one table of {problem.n_records} records: `{files[0]}` to
`{files[-1]}`. Every column here but {response} is as it was collected. The values of
{response} are synthetic in every copy and every row: draws from a spatial model.{order}
No value was copied from a record.
{how_to_read(format, files[0], dialect)}
{use}
Conclusions hold as far as the model behind the copies does; it is named in
`metadata.json`. Interactions and effects it leaves out are weakened in the
copies. Ordinary least squares ignores the spatial correlation that the copies
carry, as it would in the original. The model may have been smoothed at places
where few records are; that bias is the same in every copy, and no combining rule
counts it.
{note}"""
