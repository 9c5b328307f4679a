"""What agencies do without a model: suppress, smooth, aggregate, displace, top-code.

The paper's alternatives (section 2 of Quick, Holan and Wikle 2018): suppression,
kernel smoothing (Zhou, Dominici and Louis 2010), areas, displacement, top-coding.

An intruder who knows the method and every other y subtracts the known part of a
released linear combination: where y_i has weight w_i in it, they have y_i up to the
rounding of the published number over w_i. Kernel smoothing (own weight above 0) and
means of areas (weight 1 / count) so reveal every record in them; displaced and
untouched values stand in the open. With distinct sites the kernel matrix is regular
too: an intruder who knows the bandwidth undoes the smoothing of ALL records, knowing none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Unpack

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.arrays import Floats, Indices, Truths
from dsstan.core.errors import InputError, check_count
from dsstan.core.seeds import root_seed
from dsstan.models.arguments import settings_of
from dsstan.models.fit import fit
from dsstan.models.request import FitKeywords
from dsstan.models.result import Fit
from dsstan.models.weights import isolation_distance
from dsstan.risk.intruder.attacker import attack, planned_release
from dsstan.risk.intruder.leave_one_out import leave_one_out_precision
from dsstan.risk.keys.key_variables import grid_cells, merged
from dsstan.table.planes import as_given, with_places
from dsstan.table.prepare import prepare
from dsstan.table.problem import Problem, require_complete

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
    rows: Indices = field(repr=False)
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
    """Synthetic copies; the sds are the bounds of :class:`dsstan.risk.intruder.attacker.Attack`."""
    found = attack(release, against=against, draws=draws, progress=False)
    sd = np.stack([found.sd(variances="known"), found.sd()])
    law = {"revealed": sd[0] == 0, "error_sd": sd, "synthetic": True}
    tables = map(release.table, range(release.copies))
    return _whole(release.problem, release.fit.kind, *tables, **law)


def suppress(
    free: Fit,
    flagged: Truths,
    copies: int,
    *,
    seed: int | None = None,
    **settings: Unpack[FitKeywords],
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


def kernel(sites: Floats, bandwidth: float, rows: Indices | None = None) -> Floats:
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

    Raises InputError if an argument is impossible, or no area has enough records.

    Parameters
    ----------
    size, minimum
        Side of a cell, in the problem's unit; fewest records of one.
    small
        What becomes of cells with fewer: ``"suppress"``, or ``"merge"``, smallest
        first, with the area whose mean place is nearest.
    """
    require_complete(problem)
    check_count("minimum", minimum)
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
    release: Synthesis,
    *,
    reach: float | None = None,
    seed: int | None = None,
    **settings: Unpack[FitKeywords],
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


def _positive(value: float, name: str) -> float:
    """The value, refused unless positive and finite."""
    if isinstance(value, bool) or not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} must be positive and finite")
    return float(value)


def _moved(problem: Problem, sites: Floats) -> pd.DataFrame:
    """The table at other planar sites, in the coordinates it came with."""
    return with_places(problem, problem.table, as_given(problem, sites))


def _sd(precision: Floats) -> Floats:
    """1 / sqrt, infinite where the precision is 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(precision**-0.5)


def _means(values: Floats, rows: Indices) -> Floats:
    """Mean over the records of each row."""
    total = np.zeros((int(rows.max()) + 1, *values.shape[1:]))
    np.add.at(total, rows, values)
    return np.asarray((total.T / np.bincount(rows)).T)
