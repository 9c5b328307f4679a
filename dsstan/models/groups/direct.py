"""Draws of several groups without Stan; see :mod:`dsstan.models.groups.independence`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from dsstan._version import __version__
from dsstan.core.arrays import Floats
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import STARTS, stream
from dsstan.core.spelling import spelled
from dsstan.models.checks.conditions import Check
from dsstan.models.checks.diagnostics import RELIABLE_K, pareto_k
from dsstan.models.finish import Run
from dsstan.models.groups.coordinates import PriorCoordinates
from dsstan.models.groups.groups import Groups
from dsstan.models.groups.independence import adapted, laplace, run_chains
from dsstan.models.groups.likelihood import (
    GroupPosterior,
    GroupRecords,
    VecchiaGroups,
    exact_statistics,
)
from dsstan.models.request import Request

LINE = np.linspace(0.04, 0.96, 9)
"""Where between the ends of its range, in logs, phi is held when modes are looked for."""


def group_posterior(
    request: Request, groups: Groups, spread: Sequence[float], eta: float
) -> tuple[PriorCoordinates, GroupPosterior]:
    """The coordinates of a request, and its likelihood."""
    records = GroupRecords.of(request, groups)
    settings = request.covariance.settings
    statistics = (
        VecchiaGroups(records, settings["neighbours"], settings["ordering"])
        if request.covariance.approximate
        else exact_statistics(records)
    )
    beta_scale, group_scale = np.array(request.priors.beta_scale), np.array(spread)
    return (
        PriorCoordinates(groups.n, request.priors, eta, request.phi_held),
        GroupPosterior(statistics, records, beta_scale, group_scale),
    )


def run_direct(
    request: Request, groups: Groups, spread: Sequence[float], eta: float
) -> tuple[Run, Check]:
    """Draws, with matrices as such, and whether their proposals can be trusted."""
    coordinates, posterior = group_posterior(request, groups, spread, eta)
    rng = np.random.default_rng(stream(request.seed, STARTS, b"direct"))
    settings, label, J = request.settings, request.label, groups.n

    def evaluate(u: Floats) -> tuple[Floats, Floats]:
        sets = coordinates.natural(u)
        statistics = posterior.statistics(sets)
        value = posterior.log_likelihood(statistics) - 0.5 * np.sum(u**2, axis=1)
        return np.where(sets.inside, value, -np.inf), statistics

    def log_density(u: Floats) -> Floats:
        return evaluate(u)[0]

    free = request.phi_held is None
    line = np.array([coordinates.start(share)[-1] for share in LINE]) if free else None
    one_thread = threadpool_limits(limits=1, user_api="blas")
    with one_thread, progress_bar(f"{label}: approximation", request.progress) as advance:
        near = laplace(log_density, coordinates.start(LINE[0]), line)
        guess = adapted(log_density, near, rng, settings.chains, advance)
    with one_thread, progress_bar(f"{label}: sampling (dsstan)", request.progress) as advance:
        found = run_chains(
            *(evaluate, _coefficients(posterior, rng), guess, rng),
            samples=settings.samples,
            advance=advance,
        )
    shape = found.points.shape[:2]
    sets = coordinates.natural(found.points.reshape(-1, coordinates.size))
    T = sets.T.reshape(*shape, J, J)
    draws = {
        "beta": found.kept.reshape(*shape, J, -1),
        "T": T,
        "sigma_sq": np.diagonal(T, axis1=2, axis2=3).copy(),
        "tau_sq": sets.tau_sq.reshape(*shape, J),
        "phi": sets.phi.reshape(shape),
    }
    run = Run(draws, found.sampler, "direct", f"dsstan {__version__}", "multivariate")
    return run, _trusted(pareto_k(found.log_weights))


def _coefficients(
    posterior: GroupPosterior, rng: np.random.Generator
) -> Callable[[Floats], Floats]:
    """Coefficients from statistics, by the stream of the chains."""
    return lambda statistics: posterior.draw_coefficients(statistics, rng)


def _trusted(k: float) -> Check:
    """The check of the proposals' Pareto k."""
    return Check(
        "pareto k",
        k,
        f"at most {RELIABLE_K:g}",
        "ok" if k <= RELIABLE_K else "failure",
        "the proposals",
        "proposals miss part of the posterior: for up to 1,000 records "
        f"{spelled('engine', 'embedded')} samples it in another way",
        "not-converged",
    )
