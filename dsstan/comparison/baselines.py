"""What else an agency might publish, judged by the same table as the copies.

The paper's alternatives (section 2 of Quick, Holan and Wikle 2018): suppression,
kernel smoothing (Zhou, Dominici and Louis 2010), areas, displacement, top-coding.

An intruder who knows the method and every other y subtracts the known part of a
released linear combination: where y_i has weight w_i in it, they have y_i up to the
rounding of the published number over w_i. Kernel smoothing (own weight above 0) and
means of areas (weight 1 / count) so reveal every record in them; displaced and
untouched values stand in the open. With distinct sites the kernel matrix is regular
too: who knows the bandwidth undoes the smoothing of ALL records, knowing none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import qr
from scipy.spatial.distance import cdist

from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.spatial_estimators import near_for
from dsstan.analysis.utility import LEVEL, least_squares, least_squares_of_copies
from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.errors import InputError
from dsstan.core.seeds import root_seed
from dsstan.covariance.copy_law import projection
from dsstan.covariance.correlation import correlation
from dsstan.covariance.latent import LatentModel
from dsstan.models.arguments import settings_of
from dsstan.models.effect_map import grid
from dsstan.models.fit import fit
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.result import Fit
from dsstan.models.weights import isolation_distance
from dsstan.risk.attacker import attack, planned_release
from dsstan.risk.disclosure import RELATIVE, sides, within
from dsstan.risk.identification import grid_cells, merged, tolerances
from dsstan.risk.leave_one_out import leave_one_out_precision
from dsstan.table.formula import ParsedFormula, build_design, parse
from dsstan.table.problem import Problem, prepare, require_complete

Floats = NDArray[np.float64]
Truths = NDArray[np.bool_]

DRAWS, TOP = 20, 0.95
"""Default posterior draws behind an intruder's error, and default quantile of the top."""

_ROWS = 512
"""Records that are smoothed at a time."""


@dataclass(frozen=True, eq=False)
class Protected:
    """A table as one method would publish it.

    Attributes
    ----------
    tables, values
        What is published, and what it shows for each present record on the
        response's own scale, shape (L, n); L = 1 unless ``synthetic``.
    present, rows
        Records in the release, shape (N,); row that shows each of them, shape (n,).
    sites
        Planar place of each row, shape (m, 2).
    revealed
        Whether an intruder who knows the method and all other y finds y_i exactly, (N,).
    error_sd
        Bounds of the intruder's posterior sd, modelled scale, shape (2, N), where the method has
        worked it out; else 0 where revealed, and elsewhere that without any release.
    top
        Value at which the response is cut, own scale, if it is.
    """

    name: str
    tables: tuple[pd.DataFrame, ...] = field(repr=False)
    values: Floats = field(repr=False)
    present: Truths = field(repr=False)
    rows: NDArray[np.intp] = field(repr=False)
    sites: Floats = field(repr=False)
    revealed: Truths = field(repr=False)
    error_sd: Floats | None = field(repr=False, default=None)
    top: float | None = None
    synthetic: bool = False


def _whole(problem: Problem, name: str, *tables: pd.DataFrame, **changes: Any) -> Protected:
    """A release of every record, each in a row of its own."""
    values = np.stack([t[problem.response].to_numpy(dtype=np.float64) for t in tables])
    every, rows = np.ones(problem.n_records, dtype=bool), np.arange(problem.n_records)
    return replace(Protected(name, tables, values, every, rows, problem.sites, every), **changes)


def copies_of(release: Synthesis, *, against: Fit | None = None, draws: int = DRAWS) -> Protected:
    """Synthetic copies; the sds are the bounds of :class:`dsstan.risk.attacker.Attack`."""
    found = attack(release, against=against, draws=draws, progress=False)
    sd = np.stack([found.sd(variances="known"), found.sd()])
    law = {"revealed": sd[0] == 0, "error_sd": sd, "synthetic": True}
    tables = map(release.table, range(release.copies))
    return _whole(release.problem, release.fit.kind, *tables, **law)


def suppress(
    free: Fit, flagged: Truths, copies: int, *, seed: int | None = None, **settings: Any
) -> Protected:
    """Copies of the unflagged records, from a fit of them alone; the others are absent.

    Parameters
    ----------
    free
        The unrestricted fit of all records, for the sd that absent ones keep.
    flagged, copies
        Records to leave out, shape (N,); L.
    settings
        Arguments of :func:`dsstan.fit`, such as ``engine``; by default those of ``free``.
    """
    require_complete(free.problem)
    problem, flagged = free.problem, np.asarray(flagged, dtype=bool)
    if flagged.shape != (problem.n_records,):
        raise InputError(f"flagged needs one value a record, shape ({problem.n_records},)")
    if (~flagged).sum() < problem.n_terms + 2:
        raise InputError(f"suppression leaves {(~flagged).sum()} records, too few for a fit")
    names = problem.coord_names if problem.coord_names[0] in problem.table.columns else None
    unflagged = problem.table[~flagged]
    place = {"coords": names, "distance": problem.distance, "crs": problem.crs}
    rest = prepare(unflagged, problem.formula, name=problem.name, **place)  # type: ignore[arg-type]
    words = np.random.SeedSequence(root_seed(seed)).generate_state(2, np.uint64)
    of = {**settings_of(free), "progress": False, **settings}
    fitted = fit(rest, seed=int(words[0]), **of)
    release = synthesise(fitted, copies, seed=int(words[1]), progress=False)
    precision = np.tile(leave_one_out_precision(free, draws=DRAWS), (2, 1))
    found = attack(release, draws=DRAWS, progress=False)
    precision[:, ~flagged] += copies * (found.information + np.stack([found.leak, 0 * found.leak]))
    law = {"revealed": np.zeros_like(flagged), "error_sd": _sd(precision), "synthetic": True}
    where = {"present": ~flagged, "sites": problem.sites[~flagged]}
    return _whole(rest, "suppressed", *map(release.table, range(copies)), **where, **law)


def smooth(problem: Problem, bandwidth: float) -> Protected:
    """Kernel smoothing: sum_k W_ik y_k on the modelled scale (Zhou et al. 2010)."""
    require_complete(problem)
    smoothed, own = np.empty_like(problem.y), np.empty_like(problem.y)
    for low in range(0, problem.n_records, _ROWS):
        rows = np.arange(low, min(low + _ROWS, problem.n_records))
        W = kernel(problem.sites, bandwidth, rows)
        smoothed[rows], own[rows] = W @ problem.y, W[np.arange(rows.size), rows]
    table = problem.with_response(problem.transform.inverse(smoothed))
    return _whole(problem, f"smoothed {bandwidth:.3g}", table, revealed=own > 0)


def kernel(sites: Floats, bandwidth: float, rows: NDArray[np.intp] | None = None) -> Floats:
    """Rows of W, by default all, shape (rows, N): exp(-d / bandwidth), with sum 1."""
    here = sites if rows is None else sites[rows]
    W = np.exp(-cdist(here, sites) / _positive(bandwidth, "bandwidth"))
    return np.asarray(W / W.sum(axis=1, keepdims=True))


def aggregate(
    problem: Problem, size: float, *, minimum: int = 5, small: str = "suppress"
) -> Protected:
    """Areas: the cells of a square grid, one row each.

    A row holds the mean place, the means of the design's columns, the mean of the
    response on the modelled scale (under log, the geometric mean) and the count.

    Parameters
    ----------
    size, minimum
        Side of a cell, in the problem's unit; fewest records of one.
    small
        What becomes of cells with fewer: ``"suppress"``, or ``"merge"``, smallest
        first, with the area whose mean place is nearest.

    Raises
    ------
    InputError
        If an argument is impossible, or no area has enough records.
    """
    require_complete(problem)
    if int(minimum) != minimum or minimum < 1:
        raise InputError("minimum must be a whole number of at least 1")
    if small not in ("suppress", "merge"):
        raise InputError(f'small must be "suppress" or "merge", got {small!r}')
    cells = grid_cells(problem.sites, _positive(size, "size"))
    area = np.unique(cells, axis=0, return_inverse=True)[1].ravel()
    if small == "merge":
        area = merged(area, problem.sites, minimum)
    present = np.bincount(area)[area] >= minimum
    if not present.any():
        raise InputError(f"no area has {minimum} records: choose larger cells, or merge")
    rows = np.unique(area[present], return_inverse=True)[1].ravel()
    table = pd.DataFrame(_means(problem.coords[present], rows), columns=list(problem.coord_names))
    for term, column in zip(problem.terms, _means(problem.X[present], rows).T, strict=True):
        if term != "Intercept":
            table[term] = column
    table[problem.response] = problem.transform.inverse(_means(problem.y[present], rows))
    table["count"] = np.bincount(rows)
    values = table[problem.response].to_numpy()[rows][None]
    sites = _means(problem.sites[present], rows)
    return Protected(f"areas {size:.3g}", (table,), values, present, rows, sites, present)


def displace(problem: Problem, radius: float, *, seed: int | None = None) -> Protected:
    """Places moved uniformly in a disc, each record by itself; y is published as it is."""
    require_complete(problem)
    rng, n = np.random.default_rng(root_seed(seed)), problem.n_records
    angle, length = rng.uniform(0.0, 2.0 * np.pi, n), np.sqrt(rng.uniform(size=n))
    unit = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    step = _positive(radius, "radius") * length[:, None] * unit
    sites = problem.sites + step
    return _whole(problem, f"displaced {radius:.3g}", _moved(problem, sites), sites=sites)


def top_code(problem: Problem, quantile: float = TOP) -> Protected:
    """Values above a quantile are published as that quantile, all others as they are.

    The intruder learns of a record at the top that it is; the cut counts as fixed beforehand.
    """
    if not 0 < quantile < 1:
        raise InputError("quantile must lie between 0 and 1")
    truth = problem.original()
    top = float(np.quantile(truth, quantile, method="lower"))
    if not np.any(truth > top):
        raise InputError("no value is above this quantile, so nothing would be cut")
    table = problem.with_response(np.minimum(truth, top))
    return _whole(problem, f"top-coded {quantile:.3g}", table, revealed=truth < top, top=top)


def standard_baselines(
    release: Synthesis, *, reach: float | None = None, seed: int | None = None, **settings: Any
) -> list[Protected]:
    """Every baseline, with one length as bandwidth, cell and radius.

    By default the distance where the correlation is 1 / e, 1 / phi for the exponential.
    Suppression, as many copies as the
    release has, is there if some but not all records are flagged; top-coding if it cuts.
    """
    _, free, copies, _ = planned_release(release, None, None, "auto")
    problem, root, flagged = release.problem, root_seed(seed), release.fit.flagged
    phi = float(np.median(free.draws["phi"]))
    length = isolation_distance(math.exp(-1.0), phi, free.cov_model) if reach is None else reach
    out = [smooth(problem, length), aggregate(problem, length, small="merge")]
    out += [displace(problem, length, seed=root)]
    if np.quantile(truth := problem.original(), TOP, method="lower") < truth.max():
        out.append(top_code(problem))
    some = 0 < flagged.sum() < flagged.size
    return [suppress(free, flagged, copies, seed=root, **settings), *out] if some else out


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
        rows.append(row | {"surface": _correlation(surface, _effect(free, m))})
    return pd.DataFrame(rows).astype({f"share_{group}": "Float64" for group in groups})


def _positive(value: float, name: str) -> float:
    """The value, refused unless positive and finite."""
    if isinstance(value, bool) or not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} must be positive and finite")
    return float(value)


def _sd(precision: Floats) -> Floats:
    """1 / sqrt, infinite where the precision is 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(precision**-0.5)


def _means(values: Floats, rows: NDArray[np.intp]) -> Floats:
    """Mean over the records of each row."""
    total = np.zeros((int(rows.max()) + 1, *values.shape[1:]))
    np.add.at(total, rows, values)
    return np.asarray((total.T / np.bincount(rows)).T)


def _moved(problem: Problem, sites: Floats) -> pd.DataFrame:
    """The table at other planar sites, in the coordinates it came with."""
    coords = sites
    if problem.distance == "projected":
        import pyproj

        plane, own = pyproj.CRS(problem.sites_crs), pyproj.CRS(problem.crs)
        coords = sites * 1000.0 / plane.axis_info[0].unit_conversion_factor
        if plane != own:
            move = pyproj.Transformer.from_crs(plane, own, always_xy=True)
            coords = np.column_stack(move.transform(*coords.T))
    table = problem.table
    if problem.coord_names[0] in table.columns:
        return table.assign(**dict(zip(problem.coord_names, coords.T, strict=True)))
    points = table.geometry.from_xy(*coords.T, index=table.index, crs=table.crs)
    return table.assign(**{str(table.geometry.name): points})


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


def _correlation(a: Floats, b: Floats) -> float:
    """Correlation, or 0 where one of the two is flat to rounding."""
    if min(np.ptp(a), np.ptp(b)) <= 1e-10 * max(np.abs(a).max(), np.abs(b).max(), 1e-300):
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])
