"""What else an agency might publish, judged by the same table as the copies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import qr
from scipy.spatial.distance import cdist

from dsstan.analysis.combining import LEVEL
from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.spatial_estimators import near_for
from dsstan.analysis.spatial_surfaces import surface_correlation
from dsstan.analysis.utility import least_squares, least_squares_of_copies
from dsstan.comparison.simple_methods import (
    DRAWS,
    TOP,
    Protected,
    _means,
    _sd,
    _whole,
    aggregate,
    copies_of,
    displace,
    kernel,
    smooth,
    standard_baselines,
    suppress,
    top_code,
)
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.covariance.copy_law import projection
from dsstan.covariance.correlation import correlation
from dsstan.covariance.latent import LatentModel
from dsstan.models.effect_map import grid
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.result import Fit
from dsstan.risk.disclosure import RELATIVE, sides, within
from dsstan.risk.intruder.attacker import planned_release
from dsstan.risk.intruder.leave_one_out import leave_one_out_precision
from dsstan.risk.keys.key_variables import tolerances
from dsstan.table.formulas.formula import ParsedFormula, build_design, parse
from dsstan.table.problem import Problem

__all__ = [
    "DRAWS",
    "TOP",
    "Protected",
    "aggregate",
    "compare_baselines",
    "copies_of",
    "displace",
    "kernel",
    "smooth",
    "standard_baselines",
    "suppress",
    "top_code",
]


def compare_baselines(
    release: Synthesis,
    others: Sequence[Protected],
    *,
    against: Synthesis | None = None,
    formula: str | None = None,
    relative: float = RELATIVE,
    level: float = LEVEL,
    draws: int = DRAWS,
) -> pd.DataFrame:
    """Risk and utility of the copies and of other methods, one row each. Confidential.

    Parameters
    ----------
    release, others, against
        The copies; other methods, such as :func:`standard_baselines`; unrestricted
        copies to compare with, by default drawn afresh.
    formula
        The analyst's regression, by default the model's.
    relative, level, draws
        Tolerance of the shares; level of the intervals; draws behind the sds.

    Returns
    -------
    DataFrame
        ``method``, ``copies``, ``records`` and ``flagged`` (how many are present);
        by group ``share_`` of published values within the tolerance, over its present
        records (missing where it has none), ``sd_`` and ``sd_most_``, the smallest sd for
        an intruder who knows all other y, absent records too, at least (they know the
        variances behind each copy) and at most (the variances are of no use); by term
        ``estimate_``, ``low_``, ``high_`` and ``overlap_`` (Karr et al. 2006, at least
        0) of least squares, weighted by counts for areas; ``surface``, the correlation
        with the original's predicted spatial effect, 0 for a flat one.

    Raises
    ------
    InputError
        If there is one synthetic copy only, or a table is too small for the formula.
    """
    free = planned_release(release, against.fit if against else None, None, "auto")[1]
    problem, parsed = release.problem, parse(formula or release.problem.formula)
    if problem.structure is not None:
        raise InputError(
            "compare_baselines() knows neither a time nor groups: prepare the table without"
        )
    if parsed.response != problem.response:
        raise InputError(f"the formula's response must be {problem.response!r}")
    if any(m.present.size != problem.n_records for m in others):
        raise InputError("others holds a method of another problem")
    copies = [copies_of(s, against=free, draws=draws) for s in sides(release, against).values()]
    without = _sd(leave_one_out_precision(free, draws=draws))
    truth, flagged = problem.original(), release.fit.flagged
    groups = {n: g for n, g in (("flagged", flagged), ("unflagged", ~flagged)) if g.any()}
    terms = build_design(parsed, problem.table).terms
    original = _whole(problem, "original", problem.table)
    base, surface = _regression(problem, parsed, original, level), _effect(free, original)
    near, rows = tolerances(truth, relative, None), []
    for m in (original, *copies, *others):
        share = within(m.values, truth[m.present], near[m.present])
        sd, found = _error(m, free, without, draws), _regression(problem, parsed, m, level)
        row: dict[str, Any] = {"method": m.name, "copies": len(m.tables)}
        row |= {"records": int(m.present.sum()), "flagged": int((m.present & flagged).sum())}
        for group, members in groups.items():
            shown = share[members[m.present]]
            row[f"share_{group}"] = float(shown.mean()) if shown.size else pd.NA
            row[f"sd_{group}"], row[f"sd_most_{group}"] = sd[:, members].min(axis=1)
        overlap = interval_overlap((base[1], base[2]), (found[1], found[2])).truncated
        for term, *cells in zip(terms, *found, overlap, strict=True):
            for what, value in zip(("estimate", "low", "high", "overlap"), cells, strict=True):
                row[f"{what}_{term}"] = float(value)
        rows.append(row | {"surface": surface_correlation(surface, _effect(free, m))})
    return pd.DataFrame(rows).astype({f"share_{group}": "Float64" for group in groups})


def _error(m: Protected, free: Fit, without: Floats, draws: int) -> Floats:
    """Bounds of the intruder's sd of each record, shape (2, N); see :class:`Protected`."""
    sd = np.where(m.revealed, 0.0, without)
    if m.top is None:
        return np.broadcast_to(sd, (2, sd.size)) if m.error_sd is None else m.error_sd
    from scipy.stats import truncnorm  # half a second to import

    # Top-coded: the leave-one-out law cut from below, mixed over draws.
    hidden, model, moments = np.flatnonzero((sd > 0) & (sd < np.inf)), LatentModel(free), []
    cut = float(free.problem.transform.forward(np.array([m.top]))[0])
    for chain, iteration in spread_draws(free, min(draws, free.n_draws)):
        P = projection(model, parameters_at(free, int(chain), int(iteration)))[hidden]
        scale = P[np.arange(hidden.size), hidden] ** -0.5
        mean = model.y[hidden] - P @ model.y * scale**2
        law = truncnorm((cut - mean) / scale, np.inf, loc=mean, scale=scale)
        moments.append((law.mean(), law.var() + law.mean() ** 2))
    first, second = np.mean(moments, axis=0)
    sd[hidden] = np.sqrt(second - first**2)
    return np.broadcast_to(sd, (2, sd.size))


def _regression(
    problem: Problem, parsed: ParsedFormula, m: Protected, level: float
) -> tuple[Floats, Floats, Floats]:
    """Estimate and ends of the interval of each term, shape (P,)."""
    moved = m.sites.shape == problem.sites.shape and not np.array_equal(m.sites, problem.sites)
    moved = moved and m.tables[0].columns.equals(problem.table.columns)
    X = build_design(parsed, m.tables[0] if moved else problem.table).X[m.present]
    root = np.sqrt(np.bincount(m.rows))
    X = _means(X, m.rows) * root[:, None]
    n, p = X.shape
    if n <= p or np.linalg.matrix_rank(X) < p:
        raise InputError(f"{m.name} leaves {n} rows, too few for the {p} terms of the regression")
    y = parsed.transform.forward(m.values)
    if not np.isfinite(y).all():
        raise InputError(f"{m.name} shows values that have no {parsed.transform.name}")
    weighted = [root * _means(row, m.rows) for row in y]
    if m.synthetic:
        found = least_squares_of_copies(X, weighted, level=level)
    else:
        found = least_squares(X, weighted[0], level=level)
    return found.estimate, found.low, found.high


def _effect(free: Fit, m: Protected) -> Floats:
    """Spatial effect on a grid predicted from the mean of the tables, at the free fit's medians."""
    problem, count = free.problem, np.bincount(m.rows)
    s2, t2, phi = (float(np.median(free.draws[k])) for k in ("sigma_sq", "tau_sq", "phi"))
    X = _means(problem.X[m.present], m.rows)
    y = _means(problem.transform.forward(m.values).mean(axis=0), m.rows)
    near = near_for(m.sites)
    if near is not None:
        from dsstan.covariance.vecchia.kriging import universal_kriging

        # Row i has a nugget of t2 / count[i]: what it lacks of t2 is in its own variance.
        own = 1.0 + t2 / s2 * (1.0 / count - 1.0)
        # A level that no row has left would make X singular: any basis of its columns does.
        Q, R, _ = qr(X, mode="economic", pivoting=True)
        size = np.abs(np.diag(R))
        X = Q[:, size > 1e-10 * size.max()]
        law = ((s2, t2, phi), free.cov_model, own)
        return universal_kriging(grid(free, cells=30), X, y, m.sites, near, *law)[1]
    V = s2 * correlation(cdist(m.sites, m.sites), phi, free.cov_model) + np.diag(t2 / count)
    solved = np.linalg.solve(V, np.column_stack([X, y]))
    b = np.linalg.lstsq(X.T @ solved[:, :-1], X.T @ solved[:, -1], rcond=None)[0]
    weight = solved[:, -1] - solved[:, :-1] @ b
    R = correlation(cdist(grid(free, cells=30), m.sites), phi, free.cov_model)
    return np.asarray(s2 * R @ weight)
