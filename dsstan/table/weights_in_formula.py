"""Whether a formula holds the survey weights, as copies need for weighted estimates."""

from __future__ import annotations

import numpy as np

from dsstan.core.spelling import spelled
from dsstan.table.formulas.names import is_plain
from dsstan.table.problem import Problem

UNEXPLAINED = 1e-6
"""Share of the weights' spread that a formula may leave unexplained and still hold them."""


def weights_missed(problem: Problem) -> str | None:
    """The formula to type where that of a problem does not hold the survey weights; else None.

    It holds them if it uses their column, or if they or their logarithms are a combination of its
    columns, as they are where it has the strata by which the sample was drawn. Of what could be
    added, the two terms did best in docs/explain/survey-weights.md: with the weights themselves
    among its columns a fit leaves no residual that they would tell of.
    """
    name, weights = problem.survey_weights, problem.survey_weight_values
    if name is None or weights is None or name in problem.design.formula.columns:
        return None
    if np.ptp(weights) == 0.0:
        return None
    q = np.linalg.qr(problem.X)[0]
    for values in (weights, np.log(weights)):
        rest = values - q @ (q.T @ values)
        if np.linalg.norm(rest) <= UNEXPLAINED * np.linalg.norm(values - values.mean()):
            return None
    written = name if is_plain(name) else f"`{name}`"
    return f"{problem.formula} + log({written}) + {written}"


def missed_in_words(problem: Problem) -> str | None:
    """What is lost then, and what to type; None where nothing is."""
    formula = weights_missed(problem)
    if formula is None:
        return None
    return (
        f"the formula does not use the survey weights {problem.survey_weights!r}, so copies lose "
        f"what ties {problem.response!r} to them, and weighted estimates may be biased: "
        f"{spelled('formula', formula)}"
    )
