"""What an analyst keeps: the distribution, the map, the variogram, and groups of records.

Everything that compares copies with the original is for the confidential report. What is drawn of
the copies alone, :func:`density_of` and :func:`value_map`, the public fact sheet has too.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.ndimage import gaussian_filter1d

from dsstan.analysis.pmse import pmse
from dsstan.analysis.pooling import PooledAnalysis
from dsstan.analysis.spatial_regression import spatial_regression
from dsstan.analysis.spatial_utility import compare_variograms
from dsstan.copies.published import as_collected
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Truths
from dsstan.core.errors import DsstanWarning, InputError
from dsstan.covariance.approximations import EXACT_LIMIT
from dsstan.release.report.axes import Axes, Axis
from dsstan.release.report.basemap import basemap
from dsstan.release.report.rendering import pictures
from dsstan.release.report.words import figure
from dsstan.table.problem import Problem

CLASSES = 5
"""Classes of the coloured maps, each with as many values of the first map."""
DRAWN = 3000
"""Places of a coloured map at most."""
LEVELS = 12
"""A column with so many values at most makes groups of records."""

_SMALL = 1e-3
"""A middle half that is narrower than so much of the sd sets no width: most values are one."""

_CELLS = 512
_CURVE = 120


@dataclass(frozen=True)
class Usefulness:
    """The parts of the section; None, or why not, where there is nothing to show.

    Attributes
    ----------
    density, variogram
        Pictures.
    maps
        Pictures by name, of the original and of copy 1, and the words of their classes.
    classes
        Ranges of the colours.
    pmse, spatial
        What the classifier says, and the regression that counts spatial correlation.
    groups
        One row a group: its name, records, mean of the data, of the copies, and their range.
    absent
        What could not be computed, and why.
    """

    density: Any
    variogram: Any
    maps: dict[str, Any]
    classes: list[str]
    pmse: str | None
    spatial: PooledAnalysis | None
    groups: pd.DataFrame
    absent: dict[str, str]


def usefulness(release: Synthesis) -> Usefulness:
    """What the report shows of a release beside the regression by least squares."""
    problem, absent = release.problem, dict[str, str]()

    def found(name: str, compute: Callable[[], Any]) -> Any:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DsstanWarning)  # of two copies, said elsewhere
                return compute()
        except InputError as error:
            absent[name] = str(error)
            return None

    original = problem.original()
    maps = {"The data": original, "Copy 1": np.asarray(release.values[0], float)}
    edges = class_edges(original)
    said = found("The classifier (pMSE)", lambda: pmse(release))
    return Usefulness(
        density_of(problem, np.asarray(release.values, float), original),
        found("The variogram", lambda: _variogram(release)),
        {name: value_map(problem, values, edges, name) for name, values in maps.items()},
        class_words(edges),
        None if said is None else ". ".join(str(said).splitlines()),
        found("The regression that counts spatial correlation", lambda: _spatial(release)),
        groups(release),
        absent,
    )


def _spatial(release: Synthesis) -> PooledAnalysis:
    """The regression by generalised least squares, by one covariance for data and copies."""
    free, n = release.fits.get("unrestricted", release.fit), release.problem.n_records
    names = ["sigma_sq", "tau_sq", "phi"]
    if not set(names) <= set(free.scalars):
        raise InputError(f"the model ({free.outcome}) has another covariance")
    if n > EXACT_LIMIT:
        raise InputError(
            f"it takes long for {n:,} records: dsstan.analysis.spatial_regression"
            ".spatial_regression(release) computes it"
        )
    sigma_sq, tau_sq, phi = (float(np.median(free.scalars[name])) for name in names)
    return spatial_regression(release, covariance=(sigma_sq, tau_sq, phi))


def density_of(problem: Problem, copies: Floats, original: Floats | None = None) -> Any:
    """How the response is distributed in each copy, a band, and in the original, a line.

    Parameters
    ----------
    problem
        Gives the response's name and transform.
    copies
        Response's own scale, shape (L, N).
    original
        The same of the data, shape (N,); None draws the copies alone, and then nothing of the
        picture depends on the data.
    """
    scale = problem.transform
    first = copies[0] if original is None else original
    modelled = [scale.forward(v) for v in (first, *copies)]
    modelled = [v[np.isfinite(v)] for v in modelled]
    n = modelled[0].size
    middle = float(np.ptp(np.quantile(modelled[0], [0.25, 0.75]))) / 1.34 if n else 0.0
    whole = float(np.std(modelled[0])) if n else 0.0
    spread = min(whole, middle) if middle > _SMALL * whole else whole
    if n < 2 or spread == 0.0:
        return None
    width = 0.9 * spread * n**-0.2
    low = min(v.min() for v in modelled) - 3 * width
    high = max(v.max() for v in modelled) + 3 * width
    edges = np.linspace(low, high, max(_CELLS, int(4 * (high - low) / width)) + 1)[: 20 * _CELLS]
    step = float(edges[1] - edges[0])
    curves = np.stack(
        [
            gaussian_filter1d(np.histogram(v, edges)[0] / (v.size * step), width / step)
            for v in modelled
        ]
    )
    shown = np.flatnonzero(curves.max(axis=0) > 2e-3 * curves.max())
    places = np.linspace(shown[0], shown[-1], _CURVE).round().astype(int)
    x = scale.inverse(0.5 * (edges[:-1] + edges[1:]))[places]
    curves = curves[:, places]
    axes = Axes(
        Axis(float(x[0]), float(x[-1]), problem.response, scale),
        Axis(0.0, 1.05 * float(curves.max()), "share of records", label=None),
        left=34.0,
    )
    of_copies = curves[1:]
    bands = [("after", *(axes.place(x, end) for end in (of_copies.min(0), of_copies.max(0))))]
    lines = [("after", axes.place(x, of_copies.mean(0)))]
    if original is not None:
        lines.append(("data", axes.place(x, curves[0])))
    whose = "the copies alone" if original is None else "the copies (band) and the data (line)"
    return pictures().curves(axes, f"Distribution of {problem.response} in {whose}.", bands, lines)


def _variogram(release: Synthesis) -> Any:
    """How far residuals of two records differ, typically, by their distance."""
    found = compare_variograms(release).table
    problem, last = release.problem, list(found["source"])[-1]
    logs = problem.transform.name == "log"

    def reach(gamma: Any) -> Floats:
        typical = np.sqrt(2.0 * np.asarray(gamma, float))
        return np.expm1(typical) if logs else typical

    data, copies = (found[found["source"] == source] for source in ("original", last))
    x = data["distance"].to_numpy()
    ends = [reach(copies[end]) for end in ("smallest", "largest")]
    own = reach(data["gamma"])
    top = 1.05 * float(max(np.max(ends), own.max()))
    words = f"{problem.response} differs by" if logs else "residuals differ by"
    label = (lambda v: f"{100 * v:,.5g}%") if logs else (lambda v: f"{v:.4g}")
    axes = Axes(
        Axis(0.0, 1.02 * float(x.max()), f"distance, {problem.unit}s"),
        Axis(0.0, top, words, label=label),
        left=92.0,
    )
    bands = [("after", *(axes.place(x, end) for end in ends))]
    lines = [("after", axes.place(x, reach(copies["gamma"]))), ("data", axes.place(x, own))]
    told = (
        "By how much two records differ beyond the regression, by their distance: the copies "
        "(band) and the data (line)."
    )
    return pictures().curves(axes, told, bands, lines)


def class_edges(values: Floats) -> Floats:
    """Ends of the classes of a coloured map, between them as many values in each."""
    known = values[np.isfinite(values)]
    return np.unique(np.quantile(known, np.linspace(0, 1, CLASSES + 1)[1:-1]))


def class_words(edges: Floats) -> list[str]:
    """The range of each class."""
    ends = [figure(float(edge)) for edge in edges]
    pairs = itertools.pairwise(ends)
    return [f"up to {ends[0]}", *(f"{a} to {b}" for a, b in pairs), f"above {ends[-1]}"]


def value_map(problem: Problem, values: Floats, edges: Floats, name: str) -> Any:
    """The places, each coloured by the mean value of its records."""
    base = basemap(problem)
    site = problem.site_index
    with np.errstate(invalid="ignore"):
        mean = np.bincount(site, values, len(base.at)) / np.bincount(site, minlength=len(base.at))
    shown = np.flatnonzero(np.isfinite(mean))
    if shown.size > DRAWN:
        shown = np.sort(np.random.default_rng(0).choice(shown, DRAWN, replace=False))
    size = float(np.clip(90.0 / np.sqrt(max(shown.size, 1)), 2.5, 6.0))
    classes = np.searchsorted(edges, mean[shown], side="left")
    marks = [(*at, size, int(k)) for at, k in zip(base.at[shown].tolist(), classes, strict=True)]
    return pictures().values(base, f"{name}: {problem.response} at {shown.size} places.", marks)


def groups(release: Synthesis) -> pd.DataFrame:
    """The mean of the response in groups of records, in the data and in the copies.

    Weighted by the survey weights where there are any.

    Returns
    -------
    DataFrame
        One row a group of two records or more: ``by``, ``group``, ``records``, ``data``,
        ``copies`` (mean over the copies), ``least``, ``most``.
    """
    original, copies = release.problem.original(), np.asarray(release.values, float)
    stand_for = release.problem.survey_weight_values
    w = np.ones(original.size) if stand_for is None else stand_for
    rows = []
    for by, name, members in _members(release):
        members = members & np.isfinite(original)
        if members.sum() < 2:
            continue
        means = np.average(copies[:, members], axis=1, weights=w[members])
        own = np.average(original[members], weights=w[members])
        row = {"by": by, "group": name, "records": int(members.sum())}
        row |= {"data": own, "copies": means.mean()}
        rows.append(row | {"least": means.min(), "most": means.max()})
    columns = ["by", "group", "records", "data", "copies", "least", "most"]
    return pd.DataFrame(rows, columns=columns)


def _members(release: Synthesis) -> Iterator[tuple[str, str, Truths]]:
    """Groups of records: flagged or not, quarters of the map, categories that are published."""
    problem = release.problem
    flagged = release.fit.flagged
    if flagged.any():
        yield "Flags", "flagged", flagged
        yield "Flags", "not flagged", ~flagged
    right, up = (problem.sites > np.median(problem.sites, axis=0)).T
    for name, members in {
        "upper left": ~right & up,
        "upper right": right & up,
        "lower left": ~right & ~up,
        "lower right": right & ~up,
    }.items():
        yield "Quarters of the map", name, members
    held = [name for name in as_collected(release) if name in problem.table.columns]
    for name in held:
        column = problem.table[name]
        if name in problem.coord_names or not 2 <= column.nunique() <= LEVELS:
            continue
        for level in sorted(column.dropna().unique(), key=str):
            members = (column == level).to_numpy(dtype=bool, na_value=False)
            yield f"Column {name}", str(level), members
