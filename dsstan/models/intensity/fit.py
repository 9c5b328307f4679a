"""Fit where records are: a Poisson model of counts on the cells of a mask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypedDict, Unpack

import numpy as np
import pandas as pd

from dsstan.core.arrays import Floats, Indices
from dsstan.core.errors import (
    CoordinateError,
    InputError,
    TableError,
    check_count,
    describe_rows,
    is_number,
)
from dsstan.core.seeds import STARTS, root_seed, seed_of, stream
from dsstan.covariance.approximations import Covariance
from dsstan.models.counts.fit import CountFit, CountPriors, fit_counts
from dsstan.models.intensity.cell_law import IndependentCells
from dsstan.models.intensity.result import Intensity
from dsstan.models.intensity.stacked import EXPOSURE, exposure_of, priors_of, stacked
from dsstan.models.intensity.surface_law import OwnSurfaces, SurfaceLaw
from dsstan.table.mask.mask import OUTSIDE, Mask
from dsstan.table.problem import Problem

SURFACES = ("shared", "own", "none")
EVERYBODY = "all"
"""Label of the group where there is only one."""
EXACT_CELLS = 300
"""Cells beyond which the surface is fitted with Vecchia's approximation by default."""


class SurfaceKeywords(TypedDict, total=False):
    """What :func:`fit_intensity` hands on to :func:`dsstan.models.counts.fit.fit_counts`."""

    cov_model: str | None
    covariance: str | Covariance | None
    priors: CountPriors | None
    sampler: str
    engine: str
    chains: int
    warmup: int | None
    samples: int | None
    adapt_delta: float
    max_treedepth: int
    progress: bool | None


def fit_intensity(
    problem: Problem | Floats,
    mask: Mask,
    *,
    groups: str | Sequence[Any] | None = None,
    formula: str | None = None,
    surface: str = "shared",
    held_back: int = 1,
    phi: float | None = None,
    prior: float = 0.5,
    seed: int | None = None,
    **fitting: Unpack[SurfaceKeywords],
) -> Intensity:
    """Fit the chances with which records of each group lie in each cell.

    ``n_k(c) ~ Poisson(exposure(c) exp(a_k + x(c) b_k + u(c)))``, u a Gaussian process. The counts
    are those of the table, lower by ``held_back`` in every cell and nowhere below 0. Records of a
    cell with no more than that are *lonely*: nothing is known of their place, not even by phi.

    Parameters
    ----------
    problem
        The prepared table, or planar places of the records, shape (N, 2).
    mask
        The study area, in the problem's planar coordinates.
    groups
        Column of the problem's table with the group of each record, or N labels; by default one
        group.
    formula
        Right side of a formula of covariates of the mask, such as ``"scale(height)"``. Each group
        has coefficients of its own.
    surface
        ``"shared"``: one u for all groups. ``"own"``: a fit a group. ``"none"``: cells are
        independent, in closed form, ``p_k ~ Dirichlet(prior exposure(c))``.
    held_back
        Records of each group in each cell that do not inform a release; 0 for none.
    phi
        Decay to hold; by default it is estimated from the same counts.
    prior
        Under ``"none"``: records that a cell of average exposure is taken to hold beforehand.
    seed
        Root of the random streams; None draws one. Confidential.
    **fitting
        As for :func:`dsstan.models.counts.fit.fit_counts`; ``covariance`` is Vecchia's
        approximation beyond 300 cells.

    Returns
    -------
    Intensity
        Whether or not its fits converged: the ``verdict`` of each says.

    Raises
    ------
    CoordinateError
        If records lie outside the mask.
    InputError
        If arguments contradict each other, or no record is left to inform a surface.
    TableError
        If the group of a record is missing.
    """
    _check(mask, formula, surface, prior, fitting, phi)
    held_back = check_count("held_back", held_back, least=0)
    sites = problem.sites if isinstance(problem, Problem) else np.asarray(problem)
    labels, group_index = _groups(problem, groups, len(sites))
    cell_index = _cells(sites, mask)
    intensity = Intensity(
        mask,
        labels,
        group_index,
        cell_index,
        IndependentCells(np.tile(prior * exposure_of(mask), (len(labels), 1))),
        held_back=held_back,
    )
    if surface != "none" and intensity.lonely.all():
        raise InputError(
            f"no cell holds more than {held_back} of a group, so no record may inform a "
            "surface: give a mask of fewer, wider cells, merge groups, or lower "
            "held_back"
        )
    if surface == "none":
        return intensity
    root = root_seed(seed)
    fitting = {"covariance": "auto" if mask.n_cells <= EXACT_CELLS else "vecchia", **fitting}
    return _with_surfaces(intensity, formula, surface == "own", phi, fitting, root)


def _with_surfaces(
    intensity: Intensity,
    formula: str | None,
    own: bool,
    phi: float | None,
    fitting: SurfaceKeywords,
    seed: int,
) -> Intensity:
    """The intensity with the law of its informing records: one surface, or one a group."""
    mask, counts, groups = intensity.mask, intensity.informing, intensity.groups
    offset, there = np.log(exposure_of(mask)), np.flatnonzero(counts.sum(axis=1) > 0)
    kind = "restricted" if intensity.held_back else "unrestricted"

    def surface_of(which: Indices, child: int) -> CountFit:
        problem = stacked(mask, counts[which], tuple(groups[k] for k in which), formula)
        more: SurfaceKeywords = {"priors": priors_of(problem, len(which)), **fitting}
        return fit_counts(problem, offset=EXPOSURE, phi=phi, seed=child, **more)

    if not own:
        fit = surface_of(there, seed)
        return replace(intensity, law=SurfaceLaw(fit, counts, offset, there), fits={kind: fit})
    laws: list[SurfaceLaw | None] = [None] * len(groups)
    fits = {}
    for k in there:
        child = seed_of(stream(seed, STARTS, groups[k].encode()))
        fit = fits[f"{kind} {groups[k]}"] = surface_of(np.array([k]), child)
        laws[k] = SurfaceLaw(fit, counts[[k]], offset, np.array([0]))
    return replace(intensity, law=OwnSurfaces(tuple(laws), offset), fits=fits)


def _check(
    mask: Mask,
    formula: str | None,
    surface: str,
    prior: float,
    fitting: SurfaceKeywords,
    phi: float | None,
) -> None:
    """Raise InputError where arguments contradict each other."""
    if surface not in SURFACES:
        raise InputError(f"surface must be one of {', '.join(SURFACES)}, got {surface!r}")
    if not (is_number(prior) and 0 < prior < np.inf):
        raise InputError("prior must be a number of records above 0")
    if mask.n_cells < 2:
        raise InputError("the mask has one cell: give a smaller width, or more cells")
    given = [name for name in fitting if name != "progress"]
    given += [name for name, v in {"formula": formula, "phi": phi}.items() if v is not None]
    if surface == "none" and given:
        raise InputError(f'surface="none" fits nothing: leave {given[0]} out')


def _cells(sites: Floats, mask: Mask) -> Indices:
    """Cell of each record, shape (N,)."""
    if sites.ndim != 2 or sites.shape[1] != 2 or not np.isfinite(sites).all():
        raise CoordinateError("places of records must be finite planar pairs, shape (N, 2)")
    cells = mask.cell_of(sites)
    outside = cells == OUTSIDE
    if outside.any():
        what = "correct their coordinates, give a mask of the whole study area, or leave them out"
        if outside.mean() > 0.5:
            what = "give the mask or the addresses in the coordinates and the unit of the table"
        raise CoordinateError(
            f"the places of {describe_rows(outside)} are outside the mask: {what}"
        )
    return cells


def _groups(
    problem: Problem | Floats, groups: str | Sequence[Any] | None, n: int
) -> tuple[tuple[str, ...], Indices]:
    """Labels of the groups in order, and the group of each record."""
    if groups is None:
        return (EVERYBODY,), np.zeros(n, dtype=np.int64)
    values: Any = groups
    if isinstance(groups, str):
        if not isinstance(problem, Problem) or groups not in problem.table.columns:
            raise InputError(f"groups names column {groups!r}, which the table does not have")
        values = problem.table[groups].to_numpy()
    values = pd.Series(np.asarray(values))
    if len(values) != n:
        raise InputError(f"groups needs one label a record, {n}, and got {len(values)}")
    missing = values.isna().to_numpy(dtype=bool)
    if missing.any():
        raise TableError(f"the group of a record is missing in {describe_rows(missing)}")
    index, found = pd.factorize(values.astype(str), sort=True)
    return tuple(map(str, found)), index.astype(np.int64)
