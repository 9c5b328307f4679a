"""The truncated likelihood of brackets: data, starting values and the run."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dsstan.core.errors import InputError, is_number
from dsstan.core.progress import progress_bar
from dsstan.core.seeds import STARTS, root_seed, stan_seed, stream
from dsstan.covariance.correlation import correlation_code
from dsstan.engines import SamplerSettings, get_engine
from dsstan.engines.programs import Program
from dsstan.models.arguments import check_arguments, unrestricted_start
from dsstan.models.brackets.limits import Brackets
from dsstan.models.conditions import Check, most_flagged
from dsstan.models.priors import Priors, ResolvedPriors
from dsstan.models.result import Fit
from dsstan.models.verdict import diagnose, protection_notes
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem

__all__ = ["bracketed_data", "fit_truncated"]

Floats = NDArray[np.float64]

_LOG = logging.getLogger("dsstan")


def fit_truncated(
    problem: Problem,
    kept: Brackets,
    *,
    settings: SamplerSettings,
    weights: Weights | None,
    gamma: float | None,
    start: Fit | None,
    phi: float | None,
    cov_model: str,
    priors: Priors | None,
    engine: str,
    seed: int | None,
    progress: bool | None,
) -> dict[str, Any]:
    """Run ``bracketed.stan``; the fields of its fit by name.

    Raises
    ------
    InputError
        If arguments contradict each other.
    EngineError
        If the engine is missing or fails.
    """
    begin = time.perf_counter()
    root = root_seed(seed)
    restricted = weights is not None
    if not restricted and gamma is not None:
        raise InputError("gamma belongs to a restricted fit: give weights as well")
    if phi is not None and not (is_number(phi) and np.isfinite(phi) and phi > 0):
        raise InputError("phi must be positive and finite")
    gamma = np.inf if gamma is None else gamma
    A = np.ones(problem.n_records)
    if restricted:
        own = "Gaussian" if start is None else start.outcome  # the caller knows its kind
        A = check_arguments(problem, weights, gamma, "paper", start, phi, True, own)
    if priors is None:
        priors = start.prior_settings if start is not None else Priors()
    resolved = priors.resolve(problem.y, problem.X, problem.d_max, cov_model=cov_model)
    held = phi
    if held is None and start is not None:
        held = float(np.median(start.draws["phi"]))
    kind = "restricted" if restricted else "unrestricted"
    runner, program = get_engine(engine), Program("bracketed")
    _LOG.info("%s fit, truncated: program %s on %s", kind, program.name, runner.name)
    data = bracketed_data(problem, kept, A, resolved, held, cov_model)
    inits = _starts(problem, resolved, start, held, settings.chains, root)
    with progress_bar(f"{kind} fit: sampling ({runner.name})", progress) as advance:
        drawn = runner.sample(
            program, data, settings=settings, seed=stan_seed(root), inits=inits, advance=advance
        )
    draws = {key: drawn[key] for key in ("beta", "sigma_sq", "tau_sq", "phi", "w")}
    scalars = {f"beta_{j}": draws["beta"][:, :, j] for j in range(problem.n_terms)}
    scalars |= {key: draws[key] for key in ("sigma_sq", "tau_sq")}
    if held is None:
        scalars["phi"] = draws["phi"]
    more: tuple[Check, ...] = ()
    if weights is not None:
        chosen = weights.rule not in ("correlation", "distance")
        more = (most_flagged(weights.n_flagged, problem.n_records, chosen=chosen),)
    return {
        "problem": problem,
        "kind": kind,
        "protection": "paper" if restricted else "none",
        "weights": weights,
        "gamma": float(gamma) if restricted else 0.0,
        "A": A,
        "draws": draws,
        "phi_held": held,
        "priors": resolved,
        "prior_settings": priors,
        "engine": runner.name,
        "engine_version": runner.version,
        "program": program.name,
        "fingerprint": program.fingerprint,
        "seed": root,
        "settings": settings,
        "surface_error": 0.0,
        "nodes": (0, 0),
        "verdict": diagnose(
            scalars,
            drawn.sampler,
            max_treedepth=settings.max_treedepth,
            surface_error=0.0,
            phi_bounds=None if held is not None else resolved.phi_bounds,
            r_bounds=resolved.r_bounds,
            more=more,
        ),
        "seconds": time.perf_counter() - begin,
        # An unrestricted fit that took its phi from another is compared with none.
        "start": unrestricted_start(start) if restricted else None,
        "notes": protection_notes(
            problem,
            weights,
            A,
            "paper",
            phi=float(np.median(draws["phi"])),
            phi_from_start=phi is None,
        ),
        "cov_model": cov_model,
    }


def bracketed_data(
    problem: Problem,
    kept: Brackets,
    A: Floats,
    priors: ResolvedPriors,
    held: float | None,
    cov_model: str = "exponential",
) -> dict[str, Any]:
    """Data of ``bracketed.stan``.

    Parameters
    ----------
    problem, kept
        The table, and its brackets.
    A
        Diagonal of A, shape (N,).
    priors
        Every prior setting as a number.
    held
        The decay where it is held.
    cov_model
        One of :data:`dsstan.covariance.correlation.CORRELATIONS`.
    """
    low, high = kept.low_modelled, kept.high_modelled
    bounds = priors.phi_bounds if held is None else (held, held)
    return {
        "N": problem.n_records,
        "P": problem.n_terms,
        "n_sites": problem.n_sites,
        "X": problem.X,
        "y": problem.y,
        "coords": problem.unique_sites,
        "site": problem.site + 1,
        "A": A,
        "has_low": np.isfinite(low).astype(int),
        "has_high": np.isfinite(high).astype(int),
        "low": np.where(np.isfinite(low), low, 0.0),
        "high": np.where(np.isfinite(high), high, 0.0),
        "cov_model": correlation_code(cov_model),
        "phi_lower": bounds[0],
        "phi_upper": bounds[1],
        **priors.stan_data(),
        "draw_latent": 1,
    }


def _starts(
    problem: Problem,
    priors: ResolvedPriors,
    start: Fit | None,
    held: float | None,
    chains: int,
    root: int,
) -> list[dict[str, Any]]:
    """Natural parameters at which the chains begin: draws of ``start``, else near least squares."""
    rng = np.random.default_rng(stream(root, STARTS))
    X, y = problem.X, problem.y
    factor, *_ = np.linalg.lstsq(X, y, rcond=None)
    variance = float(np.sum((y - X @ factor) ** 2)) / max(1, y.size - factor.size)
    se = np.sqrt(variance * np.diag(np.linalg.pinv(X.T @ X)))
    low, high = priors.phi_bounds
    inits = []
    for _ in range(chains):
        if start is not None:
            at = np.unravel_index(rng.integers(start.n_draws), start.draws["sigma_sq"].shape)
            beta = start.draws["beta"][at]
            sigma_sq, tau_sq = (float(start.draws[k][at]) for k in ("sigma_sq", "tau_sq"))
        else:
            beta = factor + se * rng.uniform(-1, 1, se.size)
            sigma_sq, tau_sq = variance * np.exp(rng.uniform(-1.5, 0.5, 2))
        r = np.clip(tau_sq / sigma_sq, 1.01 * priors.r_bounds[0], 0.99 * priors.r_bounds[1])
        decay = np.sqrt(low * high) * np.exp(rng.uniform(-0.5, 0.5))
        inits.append(
            {
                "beta": beta,
                "sigma_sq": float(sigma_sq),
                "tau_sq": float(r * sigma_sq),
                "phi_free": [] if held is not None else [float(np.clip(decay, low, high))],
                "z": 0.1 * rng.standard_normal(problem.n_sites),
            }
        )
    return inits
