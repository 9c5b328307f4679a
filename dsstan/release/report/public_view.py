"""What the fact sheet shows of the copies: made from them alone, so it reveals nothing beyond them.

Whoever has the public folder can compute all of it again. How near it comes to what the original
table gives is not said, as that would reveal something of the original.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from dsstan.analysis.combining import combine
from dsstan.analysis.utility import method_in_words, regressed
from dsstan.copies.result import Synthesis
from dsstan.core.errors import DsstanWarning
from dsstan.release.report.tables import Table
from dsstan.release.report.usefulness import class_edges, class_words, density_of, value_map
from dsstan.release.report.words import figure


@dataclass(frozen=True)
class PublicView:
    """Pictures and numbers of the copies alone.

    Attributes
    ----------
    density, map
        Pictures: the distribution of the response in every copy, copy 1 on the map.
    classes
        Ranges of the map's colours.
    estimates
        The model's regression on the copies, combined; None of one copy.
    """

    density: Any
    map: Any
    classes: list[str]
    estimates: Table | None


def public_view(release: Synthesis) -> PublicView:
    """What the copies of a release show by themselves.

    Parameters
    ----------
    release
        The copies. Of the table only published columns are used: places, and the covariates of
        the formula.
    """
    problem, copies = release.problem, np.asarray(release.values, float)
    edges = class_edges(copies[0])
    return PublicView(
        density_of(problem, copies),
        value_map(problem, copies[0], edges, "Copy 1"),
        class_words(edges),
        _estimates(release) if release.copies > 1 and release.imputation is None else None,
    )


def _estimates(release: Synthesis) -> Table:
    """Least squares of the model's formula on each copy, combined by Reiter (2003)."""
    problem, weights = release.problem, release.problem.survey_weight_values
    copies = zip(
        release.designs(problem.design), release.modelled(), ~release.in_heap(), strict=True
    )
    fitted = (
        regressed(X[rows], y[rows], None if weights is None else weights[rows])
        for X, y, rows in copies
    )
    coefs, variances = zip(*fitted, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DsstanWarning)  # of two copies, said to the steward
        pooled = combine(np.stack(coefs), np.stack(variances))
    rows = [
        {
            "term": str(term),
            "estimate": figure(float(pooled.estimate[k]), 4),
            "95% interval": " to ".join(
                figure(float(end[k]), 4) for end in (pooled.low, pooled.high)
            ),
        }
        for k, term in enumerate(problem.terms)
    ]
    method = method_in_words(problem.formula, problem.survey_weights)
    return Table(rows, f"{method} on the copies, combined", stub="term")
