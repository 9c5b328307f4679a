"""What an intruder believes of a value before and after they see the copies.

Bayesian attribute risk (Reiter, Wang and Zhang 2014; Hu 2019): an intruder who knows
all other values, the public columns and how the copies were made weighs every
candidate y* for y_i by::

    p(y* | y_-i) prod_l p(copy l | y*, y_-i)

Coefficients are integrated out under a flat prior, as in :mod:`dsstan.risk.intruder.attacker`.
Draws v of the variances (and of a free phi) come from the posterior given the
true y; ``y*`` reweights them by ``p(y* | v) / p(y | v)``. The log of that ratio and
``log p(copy | y*, v)`` are quadratics in ``delta = y* - y_i``. Their coefficients, sigma_sq
taken out, are smooth in (log phi, log r): a few nodes serve any number of draws.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pandas as pd
from scipy.interpolate import CubicSpline
from scipy.linalg import solve_triangular
from scipy.special import logsumexp, ndtr
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats, Indices
from dsstan.core.chebyshev import ChebyshevGrid
from dsstan.core.errors import InputError, describe_rows
from dsstan.core.progress import progress_bar
from dsstan.covariance.base import Parameters
from dsstan.covariance.copy_law import copy_law, projected_precision, projection
from dsstan.covariance.eigenbasis import alone
from dsstan.covariance.latent import LatentModel, require_all_pairs
from dsstan.models.checks.diagnostics import RELIABLE_K, pareto_k
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.predictive import carried_effect
from dsstan.models.result import Fit
from dsstan.risk.disclosure import RELATIVE
from dsstan.risk.intruder.attacker import planned_release
from dsstan.risk.keys.key_variables import tolerances
from dsstan.table.problem import Problem, record_positions

DRAWS, FEWEST = 2000, 50
"""Posterior draws that are reweighted unless others are asked for, and fewest for a Pareto tail."""

_GRID, _REACH, _MOVES = 25, 7.0, 20
"""Candidates of a record, the reach of their grid in sds, and most times it is moved."""

_NODES, _ERROR, _DIRECT = ((8, 12), (12, 18), (18, 27)), 1e-5, 400
"""Nodes in (log phi, log r), the error allowed, and the draws taken one by one beyond it."""


@dataclass(frozen=True, eq=False)
class Attribute:
    """What three intruders believe of each record.

    ``public`` knows the public columns and the copies of the OTHER records, and
    takes each copy in turn for the data: what the release says of a record that isn't in
    it. ``without`` knows every other true value and no copy. ``with`` knows every
    other true value and all copies: what they gain on ``without`` is the release's.

    ``records`` has one row a record: ``flagged``; for each intruder ``mean`` and ``sd``
    (modelled scale) and ``near``, their probability of values near the truth;
    ``mc_error`` of ``mean_with`` and ``sd_with`` in units of the latter, by halves of
    the draws; ``pareto_k``, the largest k of the weights at the ends of their 95%
    intervals; ``reliable``, k at most 0.7. Confidential.
    """

    records: pd.DataFrame = field(repr=False)
    summary: pd.DataFrame
    relative: float | None
    absolute: float | None
    draws: int
    seconds: float

    def __str__(self) -> str:
        bad = int((~self.records["reliable"]).sum())
        lines = ["What an intruder believes (sd on the modelled scale)"]
        if bad:
            lines.append(f"{bad} records have a Pareto k above {RELIABLE_K}: don't trust theirs")
        lines.append(f"largest Monte Carlo error {self.records['mc_error'].max():.2g} sd")
        text = self.summary.to_string(index=False, float_format=lambda v: f"{v:.3g}")
        return "\n".join([*lines, text])


def attribute(
    release: Synthesis,
    *,
    against: Fit | None = None,
    records: Sequence[int] | None = None,
    relative: float | None = None,
    absolute: float | None = None,
    draws: int = DRAWS,
    progress: bool | None = None,
) -> Attribute:
    """Posterior of each value for an intruder who knows all others, by importance sampling.

    They are given what a release says of itself (model, protection, gamma, flags, a held phi, prior
    scales) and none of the draws behind the copies. With the variances fixed the sd is that of
    :func:`dsstan.risk.intruder.attacker.attack` without its margin; over a posterior it is about
    between the bounds there. It holds matrices of all pairs, so it takes the exact
    covariance, up to 5000 records.

    Parameters
    ----------
    release
        The copies, as published.
    against
        The unrestricted fit of the belief without copies; by default that of the release's fit.
    records
        Indices of the records to look at, by default all.
    relative, absolute
        What is near, on the response's own scale; one of them, by default 10%.
    draws
        Posterior draws to reweight, spread over the chains, those behind the copies
        left out. With few, each copy clings to its nearest and the intruder looks as
        if they knew the variances: ``mc_error`` says how rough it is.

    Raises
    ------
    InputError
        If there is no unrestricted fit, a record, position or tolerance is impossible, too few
        draws are left, a covariance is approximated, noise was added, or there are more than 5000
        records.
    """
    begin = time.perf_counter()
    fit, free, _, _ = planned_release(release, against, None, "auto")
    require_all_pairs("attribute", fit, free)
    if release.noise is not None:
        raise InputError(
            "attribute() takes copies without added noise: assess() counts it, for an intruder "
            "who knows all other records"
        )
    problem = fit.problem
    rows = record_positions(problem, records)
    if alone(problem.X)[rows].any():
        where = describe_rows(alone(problem.X)[rows])
        raise InputError(f"of those asked for, a coefficient of their own have {where}")
    low, high = _bounds(problem, rows, relative, absolute)
    picks = _unused(fit, draws, release.draw_index)
    own = picks if free is fit else spread_draws(free, min(draws, free.n_draws))
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("attribute risk", progress) as advance,
    ):
        copies = release.modelled()
        prior = _at_nodes(free, own, lambda at: _prior_terms(at, free, copies, rows))
        advance(0.2)
        law = _at_nodes(fit, picks, lambda at: _copy_terms(at, release, rows))
        advance(0.5)
        base, found = _base(law), []
        for i, y in enumerate(problem.y[rows]):
            found.append(_record(prior, law, base, i, (low[i] - y, high[i] - y), float(y)))
            advance(0.5 + 0.5 * (i + 1) / rows.size)
    table = pd.DataFrame(found, index=problem.table.index[rows])
    if np.any(np.all(release.values == problem.original(), axis=1)):
        # Whatever the model says, an intruder who knows the others sees which copy is the original.
        table = table.assign(mean_with=problem.y[rows], sd_with=0.0, near_with=1.0)
    table.insert(0, "flagged", fit.flagged[rows])
    return Attribute(
        records=table,
        summary=_summary(table),
        relative=(RELATIVE if relative is None else relative) if absolute is None else None,
        absolute=absolute,
        draws=len(base),
        seconds=time.perf_counter() - begin,
    )


class _Lattice:
    """Draws as weighted sums of terms at nodes in (log phi, log r), sigma_sq taken out."""

    def __init__(self, fit: Fit, picks: Indices, nodes: tuple[int, ...] = ()) -> None:
        drawn = [parameters_at(fit, int(chain), int(iteration)) for chain, iteration in picks]
        self.n = fit.problem.n_records
        self.sigma_sq = np.array([p.sigma_sq for p in drawn])
        where = [[p.phi for p in drawn], [p.tau_sq / p.sigma_sq for p in drawn]]
        if not nodes:
            points, self.weight = list(zip(*where, strict=True)), np.eye(len(drawn))
        else:
            (g, phi), (h, r) = (
                (size if min(values) < max(values) else 1, (min(values), max(values)))
                for values, size in zip(where, nodes, strict=True)
            )
            grid = ChebyshevGrid((g, h), (phi, r))
            points = list(product(*grid.points))
            each = grid.coefficients(np.eye(g * h).reshape(g, h, g * h))  # 1 at a node, else 0
            self.weight = np.stack([grid.at(each, *at) for at in zip(*where, strict=True)])
        self.parameters = [Parameters(drawn[0].beta, 1.0, float(r), float(f)) for f, r in points]


@dataclass(frozen=True, eq=False)
class _Terms:
    """Coefficients at K nodes with sigma_sq = 1, for n records and L copies."""

    lattice: _Lattice
    score: Floats  # (P y)_i, shape (K, n)
    precision: Floats  # P_ii, shape (K, n)
    slope: Floats  # h_i' Vs^-1 (copy - H y), shape (K, L, n); see _prior_terms
    bend: Floats  # h_i' Vs^-1 h_i, shape (K, n)
    square: Floats  # (copy - H y)' Vs^-1 (copy - H y), shape (K, L)
    half_log_det: Floats  # of Vs, shape (K,)

    def at(self, values: Floats) -> Floats:
        """Values, shape (K, ...), at the draws with their sigma_sq, shape (S, ...)."""
        found = np.tensordot(self.lattice.weight, values, axes=1)
        return np.asarray(found / self.lattice.sigma_sq.reshape(-1, *(1,) * (found.ndim - 1)))


def _at_nodes(fit: Fit, picks: Indices, compute: Callable[[_Lattice], _Terms]) -> _Terms:
    """Terms at enough nodes, judged at the draw of smallest r; else at the draws themselves."""

    def judged(terms: _Terms, s: int) -> Floats:
        precision = np.maximum(terms.at(terms.precision)[s], 1e-300)
        return np.append(_base(terms)[s], terms.at(terms.score)[s] / np.sqrt(precision))

    edge = int(np.argmin((fit.draws["tau_sq"] / fit.draws["sigma_sq"])[picks[:, 0], picks[:, 1]]))
    exact = judged(compute(_Lattice(fit, picks[[edge]])), 0)
    for nodes in _NODES:
        terms = compute(_Lattice(fit, picks, nodes))
        if np.max(np.abs(judged(terms, edge) - exact)) < _ERROR:
            return terms
    return compute(_Lattice(fit, picks[:: -(-len(picks) // _DIRECT)]))


def _prior_terms(lattice: _Lattice, free: Fit, copies: Floats, rows: Indices) -> _Terms:
    """Of the unrestricted fit; slope holds P_ii (m - y_i), m the mean given the others' copy."""
    model, found = LatentModel(free), []
    for p in lattice.parameters:
        P = projection(model, p)[rows]
        own = P[np.arange(rows.size), rows]
        gap = own * (copies[:, rows] - model.y[rows]) - copies @ P.T
        found.append((P @ model.y, own, gap))
    score, precision, gap = (np.stack(x) for x in zip(*found, strict=True))
    empty = np.zeros((len(score), 0))
    return _Terms(lattice, score, precision, gap, empty, empty, np.zeros(len(score)))


def _copy_terms(lattice: _Lattice, release: Synthesis, rows: Indices) -> _Terms:
    """Of the release's fit."""
    fit, values = release.fit, release.modelled()
    model, carried = LatentModel(fit), carried_effect(fit, release.effect)[0]
    y, found = fit.problem.y, []
    for p in lattice.parameters:
        law = copy_law(model, p, carried)
        root = np.linalg.cholesky(law.Vs)
        h = solve_triangular(root, law.H[:, rows], lower=True, check_finite=False)
        r = solve_triangular(root, (values - law.H @ y).T, lower=True, check_finite=False)
        precision = np.zeros(y.size)
        precision[model.rows] = projected_precision(model, p)
        squares = np.sum(h**2, axis=0), np.sum(r**2, axis=0)
        log_det = np.sum(np.log(np.diag(root)))
        found.append((law.score[rows], precision[rows], r.T @ h, *squares, log_det))
    return _Terms(lattice, *(np.stack(x) for x in zip(*found, strict=True)))


def _base(terms: _Terms) -> Floats:
    """log p(copy l | y, v) at every draw, a constant left out, shape (S, L)."""
    scale = 0.5 * terms.lattice.n * np.log(terms.lattice.sigma_sq)
    log_det = terms.lattice.weight @ terms.half_log_det + scale
    return np.asarray(-log_det[:, None] - 0.5 * terms.at(terms.square))


def _log_ratio(score: Floats, precision: Floats, delta: Floats) -> Floats:
    """log p(y* | v) - log p(y | v) at each delta and draw, shape (G, S)."""
    return -delta[:, None] * score - 0.5 * delta[:, None] ** 2 * precision


def _record(
    prior: _Terms, law: _Terms, base: Floats, i: int, bounds: tuple[float, float], y: float
) -> dict[str, float | bool]:
    """All numbers of one record; bounds relative to y, the modelled truth."""
    u, q = prior.at(prior.score[:, i]), prior.at(prior.precision[:, i])
    cu, cq = law.at(law.score[:, i]), law.at(law.precision[:, i])
    slope, bend = law.at(law.slope[:, :, i]), law.at(law.bend[:, i])
    gap, sd = prior.at(prior.slope[:, :, i]) / q[:, None], q[:, None] ** -0.5
    near = ndtr((bounds[1] - gap) / sd) - ndtr((bounds[0] - gap) / sd)
    spread = np.sqrt(np.mean(sd**2) + gap.var())

    def without(delta: Floats) -> Floats:
        return np.asarray(logsumexp(_log_ratio(u, q, delta), axis=1))

    def seen(delta: Floats, half: slice = slice(None)) -> Floats:
        total, ratio = without(delta), _log_ratio(cu[half], cq[half], delta)
        whole = logsumexp(ratio, axis=1)
        for g, d in enumerate(delta):
            shift = ratio[g] - 0.5 * d**2 * bend[half]
            one = base[half] + d * slope[half] + shift[:, None]
            top = one.max(axis=0)
            total[g] += np.sum(top + np.log(np.exp(one - top).sum(axis=0)) - whole[g])
        return total

    # The normal law with the variances fixed says where to begin.
    total = float(q.mean() + base.shape[1] * bend.mean())
    pull = float(np.sum(slope.mean(axis=0)) - u.mean())
    before = _posterior(without, (float(-u.mean() / q.mean()), float(q.mean() ** -0.5)), bounds)
    after = _posterior(seen, (pull / total, total**-0.5), bounds)
    m0, s0, _ = _posterior(lambda d: seen(d, slice(0, None, 2)), after[:2], bounds)
    m1, s1, _ = _posterior(lambda d: seen(d, slice(1, None, 2)), after[:2], bounds)
    errors = abs(m0 - m1) / 2, abs(s0 - s1) / 2, abs(after[1] - (s0 + s1) / 2)
    ends = [found[0] + np.array([-2.0, 2.0]) * found[1] for found in (before, after)]
    k = max(pareto_k(x) for x in (*_log_ratio(u, q, ends[0]), *_log_ratio(cu, cq, ends[1])))
    public = float(gap.mean()), float(spread), float(near.mean())
    row: dict[str, float | bool] = {}
    for name, found in (("public", public), ("without", before), ("with", after)):
        row |= {f"mean_{name}": y + found[0], f"sd_{name}": found[1], f"near_{name}": found[2]}
    return row | {"mc_error": max(errors) / after[1], "pareto_k": k, "reliable": k <= RELIABLE_K}


def _posterior(
    log_density: Callable[[Floats], Floats], start: tuple[float, float], ends: tuple[float, float]
) -> tuple[float, float, float]:
    """Mean, sd and probability between the ends of a density with one peak, by moving a grid."""
    centre, reach = start[0], _REACH * start[1]
    for _ in range(_MOVES):
        x = centre + np.linspace(-reach, reach, _GRID)
        log_p = log_density(x)
        weight = np.exp(log_p - log_p.max())
        weight /= weight.sum()
        mean = float(weight @ x)
        sd = max(float(np.sqrt(weight @ (x - mean) ** 2)), 0.25 * (x[1] - x[0]))
        if abs(mean - centre) < 0.5 * sd and 0.8 < reach / (_REACH * sd) < 1.3:
            break
        inside = 0 < np.argmax(log_p) < _GRID - 1
        centre, reach = (mean, _REACH * sd) if inside else (mean, 2.0 * reach)
    fine = np.linspace(x[0], x[-1], 128 * (_GRID - 1) + 1)
    density = np.exp(CubicSpline(x, log_p - log_p.max())(fine))
    density /= density.sum()
    mean = float(density @ fine)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    low, high = np.interp(ends, fine, below / below[-1])
    return mean, float(np.sqrt(density @ (fine - mean) ** 2)), float(high - low)


def _bounds(
    problem: Problem, rows: Indices, relative: float | None, absolute: float | None
) -> tuple[Floats, Floats]:
    """Ends of "near the truth" on the modelled scale, each of shape (n,)."""
    truth = problem.original()[rows]
    reach = tolerances(truth, relative, absolute)
    if not np.all(reach > 0):
        where = describe_rows(~(reach > 0))
        raise InputError(f"a tolerance of 0, of those asked for, have {where}: give absolute=")
    low, high = (problem.transform.forward(truth + sign * reach) for sign in (-1.0, 1.0))
    return np.where(np.isfinite(low), low, -np.inf), high


def _unused(fit: Fit, count: int, used: Indices) -> Indices:
    """Draws from all chains, those behind the copies left out, shape (S, 2)."""
    chains, samples = fit.draws["sigma_sq"].shape
    free = np.ones((samples, chains), dtype=bool)
    free[used[:, 1], used[:, 0]] = False
    left = np.argwhere(free)[:, ::-1]
    taken = min(int(count), len(left))
    if taken < FEWEST:
        raise InputError(f"{FEWEST} draws are needed of {count}; the copies leave {len(left)}")
    # At random, since regular steps would favour chains; by a seed, so that numbers stay.
    return left[np.sort(np.random.default_rng(0).permutation(len(left))[:taken])]


def _summary(table: pd.DataFrame) -> pd.DataFrame:
    """One row an intruder and group that has records."""
    rows, flagged = [], table["flagged"].to_numpy(dtype=bool)
    for name in ("public", "without", "with"):
        groups = {"flagged": flagged, "unflagged": ~flagged, "all": flagged | True}
        for group, members in groups.items():
            sd, near = table.loc[members, f"sd_{name}"], table.loc[members, f"near_{name}"]
            if len(sd):
                cells = (len(sd), sd.min(), sd.median(), near.mean(), near.max())
                rows.append((name, group, *cells))
    columns = ["intruder", "group", "records", "smallest_sd", "median_sd", "mean_near", "max_near"]
    return pd.DataFrame(rows, columns=columns)
