"""What an analyst who thinks of space could still estimate from the copies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from dsstan.analysis.combining import LEVEL, check_two, combine
from dsstan.analysis.pooling import SMOOTHING_BIAS
from dsstan.analysis.spatial_estimators import (
    PARAMETERS,
    R_BOUNDS,
    MaximumLikelihood,
    _log_variances,
    _maximise,
    _varies,
    conley,
    gls,
    maximum_likelihood,
    near_of,
)
from dsstan.analysis.spatial_regression import (
    conley_regression,
    spatial_regression,
)
from dsstan.analysis.spatial_statistics import (
    fit_variogram,
    morans_i,
    nearest_weights,
    spatial_weights,
    variogram,
)
from dsstan.analysis.utility import ols
from dsstan.copies.result import Synthesis, require_one_column
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError
from dsstan.covariance.approximations import EXACT_LIMIT
from dsstan.covariance.correlation import correlation, decay_bounds
from dsstan.covariance.likelihood_surface import Surface
from dsstan.covariance.pairs import Pairs, pairs_of
from dsstan.covariance.vecchia.neighbours import Neighbours
from dsstan.models.result import Fit
from dsstan.risk.disclosure import sides

__all__ = [
    "SMOOTHING_BIAS",
    "MaximumLikelihood",
    "SpatialComparison",
    "compare_morans_i",
    "compare_variograms",
    "conley",
    "conley_regression",
    "fit_variogram",
    "gls",
    "maximum_likelihood",
    "morans_i",
    "nearest_weights",
    "recover_parameters",
    "spatial_regression",
    "spatial_weights",
    "variogram",
]


@dataclass(frozen=True, eq=False)
class SpatialComparison:
    """The original and the copies side by side, in one spatial respect.

    Attributes
    ----------
    table
        What was found; see the function that made it.
    title
        What it is.
    curves
        Of variograms, by source: sigma_sq, tau_sq and phi of the fitted curve.
    """

    table: pd.DataFrame = field(repr=False)
    title: str
    curves: Mapping[str, tuple[float, float, float]] = field(default_factory=dict)

    def __str__(self) -> str:
        text = self.table.to_string(index=False, float_format=lambda v: f"{v:.4g}")
        return f"{self.title}\n{text}\n{SMOOTHING_BIAS}"


@dataclass(frozen=True, eq=False)
class _Data:
    """Design, sites, responses on the modelled scale, (1 or L, N) a source, and the model's R.

    With ``near`` analyses are given neighbours instead of ``pairs``.
    """

    X: Floats
    sites: Floats
    d_max: float
    responses: Mapping[str, Floats]
    model: Fit
    near: Neighbours | None = None

    @property
    def cov_model(self) -> str:
        """The correlation function."""
        return self.model.cov_model

    @cached_property
    def pairs(self) -> Pairs:
        """Those of all records."""
        return pairs_of(self.model)

    def best(self, y: Floats) -> tuple[MaximumLikelihood, Surface]:
        """The maximum of the likelihood of one response, and its surface."""
        law = self.cov_model, self.near, None if self.near is not None else self.pairs
        return _maximise(self.X, y, self.sites, None, R_BOUNDS, *law)

    def __iter__(self) -> Iterator[tuple[str, int, Floats]]:
        for source, values in self.responses.items():
            for number, y in enumerate(values):
                yield source, number, y

    def residuals(self, y: Floats) -> Floats:
        """Least-squares residuals; exactly 0 where only rounding is left."""
        rest = np.asarray(y - self.X @ ols(self.X, y)[0])
        return rest if _varies(rest, y) else np.zeros_like(rest)


def _data(release: Synthesis, against: Fit | Synthesis | None, *, ordered: bool = False) -> _Data:
    """What every comparison of a release needs; ordered where it needs the covariance."""
    problem = release.problem
    require_one_column(release)
    responses = {"original": problem.y[None]}
    responses.update({name: s.modelled() for name, s in sides(release, against).items()})
    near = near_of(problem) if ordered else None
    return _Data(problem.X, problem.sites, problem.d_max, responses, release.fit, near)


def compare_variograms(
    release: Synthesis,
    *,
    bins: int = 12,
    longest: float | None = None,
    against: Fit | Synthesis | None = None,
) -> SpatialComparison:
    """Semivariogram of the regression's residuals, original against copies.

    Parameters
    ----------
    release
        The copies; one is enough.
    bins
        Of equal width.
    longest
        Upper end of the last bin; by default half the largest distance.
    against
        See :func:`dsstan.disclosure`.

    Returns
    -------
    SpatialComparison
        One row a source and bin: ``distance``, ``pairs``, ``gamma`` (mean over
        the copies, ``smallest`` and ``largest`` beside it) and ``curve``, the
        fit's correlation function fitted to the mean. Its parameters are in ``curves``.
        Of more than 2000 records, the pairs are those of 2000 drawn at random, the same in
        the original and all copies.
    """
    data = _data(release, against)
    n, title = len(data.sites), "Semivariogram"
    some = np.arange(n)
    if n > EXACT_LIMIT:
        some = np.sort(np.random.default_rng(0).choice(n, EXACT_LIMIT, replace=False))
        title += f", pairs of {EXACT_LIMIT:,} of {n:,} records"
    reach = 0.5 * data.d_max if longest is None else longest
    if not (bins >= 1 and np.isfinite(reach) and reach > 0):
        raise InputError("bins must be at least 1 and longest positive and finite")
    edges = np.linspace(0.0, reach, bins + 1)
    tables, curves = [], {}
    for source, responses in data.responses.items():
        found = [variogram(data.residuals(y)[some], data.sites[some], edges) for y in responses]
        if found[0].empty:
            raise InputError("no two records are that near: raise longest")
        gamma = np.stack([v["gamma"].to_numpy() for v in found])
        table = found[0].assign(gamma=gamma.mean(axis=0))
        distance, pairs = table["distance"].to_numpy(), table["pairs"].to_numpy()
        phi_bounds = decay_bounds(data.d_max, data.cov_model)
        mean = gamma.mean(axis=0)
        curve = fit_variogram(distance, mean, pairs, phi_bounds, data.cov_model)
        table["smallest"], table["largest"] = gamma.min(axis=0), gamma.max(axis=0)
        rises = 1.0 - correlation(distance, curve[2], data.cov_model)
        table["curve"] = curve[1] + curve[0] * rises
        table.insert(0, "source", source)
        tables.append(table)
        curves[source] = curve
    return SpatialComparison(pd.concat(tables, ignore_index=True), title, curves)


def compare_morans_i(
    release: Synthesis,
    *,
    neighbours: int | None = 8,
    against: Fit | Synthesis | None = None,
) -> SpatialComparison:
    """Moran's I of the regression's residuals, original against copies.

    Parameters
    ----------
    release
        The copies; one is enough.
    neighbours
        See :func:`spatial_weights`.
    against
        See :func:`dsstan.disclosure`.

    Returns
    -------
    SpatialComparison
        One row a source: ``morans_i`` (mean over the copies), ``smallest`` and
        ``largest``.

    Raises
    ------
    InputError
        If a regression leaves no residual, or the weights can't be made; inverse distance is
        for up to 2000 records.
    """
    data = _data(release, against)
    if neighbours is not None:
        weights: Any = nearest_weights(data.sites, neighbours)
    elif len(data.sites) <= EXACT_LIMIT:
        weights = spatial_weights(data.sites)
    else:
        raise InputError(
            f"inverse distances of {len(data.sites):,} records are too many: give a number of "
            "neighbours"
        )
    found: dict[str, list[float]] = {source: [] for source in data.responses}
    for source, number, y in data:
        residual = data.residuals(y)
        if not residual.any():
            raise InputError(f"the regression leaves no residual on {source} copy {number}")
        found[source].append(morans_i(residual, weights))
    kind = "inverse distance" if neighbours is None else f"{neighbours} nearest records"
    rows = [
        {"source": s, "morans_i": np.mean(v), "smallest": min(v), "largest": max(v)}
        for s, v in found.items()
    ]
    return SpatialComparison(pd.DataFrame(rows), f"Moran's I, {kind}")


def recover_parameters(
    release: Synthesis,
    *,
    against: Fit | Synthesis | None = None,
    level: float = LEVEL,
) -> SpatialComparison:
    """sigma_sq, tau_sq and phi by maximum likelihood on each copy, combined.

    Combined on the log scale by Reiter (2003), variances from the observed
    information.

    Returns
    -------
    SpatialComparison
        One row a source and parameter: ``estimate`` (for copies the geometric
        mean), ``low``, ``high`` and ``uninformative``, the number of data sets
        whose maximum lies at an end of the range of phi or tau_sq / sigma_sq, or
        whose likelihood is flat. With any such the interval is (0, inf).

    Raises
    ------
    InputError
        If there is only one copy, or one leaves no residual.
    """
    data = _data(release, against, ordered=True)
    check_two(release.copies)
    rows, ranges = [], (decay_bounds(data.d_max, data.cov_model), R_BOUNDS)
    for source, responses in data.responses.items():
        found, variances = [], []
        for y in responses:
            best, surface = data.best(y)
            found.append(np.log([best.sigma_sq, best.tau_sq, best.phi]))
            variances.append(_log_variances(surface, best, ranges))
        q, u = np.stack(found), np.stack(variances)
        blind = int(np.sum(~np.isfinite(u).all(axis=1)))
        centre = q.mean(axis=0)
        if blind:
            low, high = np.full(3, -np.inf), np.full(3, np.inf)
        elif len(q) == 1:
            half = ndtri(0.5 + level / 2) * np.sqrt(u[0])
            low, high = centre - half, centre + half
        else:
            pooled = combine(q, u, level=level)
            low, high = pooled.low, pooled.high
        rows += [
            {
                "source": source,
                "parameter": PARAMETERS[k],
                "estimate": np.exp(centre[k]),
                "low": np.exp(low[k]),
                "high": np.exp(high[k]),
                "uninformative": blind,
            }
            for k in range(3)
        ]
    title = f"Covariance parameters by maximum likelihood, {100 * level:.0f}% intervals"
    return SpatialComparison(pd.DataFrame(rows), title)
