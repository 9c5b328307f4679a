"""One verdict on a fit, with its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.spatial import cKDTree

from dsstan.core.arrays import Floats
from dsstan.covariance.correlation import correlation_distance
from dsstan.covariance.likelihood_surface import TOLERANCE
from dsstan.covariance.protection import protection_of
from dsstan.engines.base import SamplerSettings
from dsstan.models.checks.advice import (
    deeper_trees,
    more_samples,
    more_warmup,
    shared_places,
    shorter_steps,
    times_longer,
)
from dsstan.models.checks.conditions import Check, at_bounds, several_modes
from dsstan.models.checks.diagnostics import ess, rhat
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem

RHAT_LIMIT = 1.01
ESS_PER_CHAIN = 100
EBFMI_LIMIT = 0.3
DIVERGENT_SHARE = 0.005
"""Share of draws with a divergence beyond which a fit fails."""
STRAY_SHARE = 0.001
"""Share up to which it is not even a warning. Four draws of 4,000 move no number by as much as
its Monte Carlo error, and one ordinary fit in twelve meets one or two."""
TREEDEPTH_SHARE = 0.01
NEAR_CORRELATION = 0.20
"""Flagged records that correlate more than this count as near one another."""


@dataclass(frozen=True)
class Verdict:
    """Whether a fit may reach synthesis, and why."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """True unless a check failed; warnings do not count."""
        return not self.failures

    @property
    def failures(self) -> tuple[Check, ...]:
        """Checks that failed."""
        return tuple(c for c in self.checks if c.severity == "failure")

    @property
    def warnings(self) -> tuple[Check, ...]:
        """Checks that warn."""
        return tuple(c for c in self.checks if c.severity == "warning")

    def __str__(self) -> str:
        head = "passed" if self.passed else "failed"
        return "\n".join([head, *(str(c) for c in self.failures + self.warnings)])


def diagnose(
    draws: Mapping[str, Floats],
    sampler: Floats,
    *,
    settings: SamplerSettings,
    surface_error: float | None,
    phi_bounds: tuple[float, float] | None,
    r_bounds: tuple[float, float] | None,
    phi_stated: bool = True,
    repeated: str | None = None,
    more: tuple[Check, ...] = (),
) -> Verdict:
    """Judge a run.

    Parameters
    ----------
    draws
        Scalar parameters by name, each of shape (chains, samples); must hold
        ``sigma_sq`` and ``tau_sq`` where there are ``r_bounds``, and ``phi`` where it was free.
    sampler
        Shape (chains, samples, 4): acceptance, treedepth, divergence, energy.
    settings
        Of the sampler.
    surface_error
        Largest error of the interpolated log density, or None where none is interpolated.
    phi_bounds
        Prior bounds of the decay, or None where it was held.
    r_bounds
        Range of tau_sq / sigma_sq, or None for a model without a nugget.
    phi_stated
        Whether the user stated the range of the decay.
    repeated
        Why the table has no nugget, if its records show it.
    more
        Checks of other things that belong into the verdict.
    """
    checks = [
        *_of_chains(draws, ESS_PER_CHAIN * len(sampler), settings),
        *_of_sampler(sampler, settings),
    ]
    if surface_error is not None:
        fine = surface_error < TOLERANCE
        limit = f"below {TOLERANCE:g}"
        advice = "leave nodes out: as many as the tolerance needs are then taken"
        checks.append(_met("surface error", surface_error, fine, limit, advice, "surface-error"))
    bounds = at_bounds(*(draws, phi_bounds, r_bounds), phi_stated=phi_stated, repeated=repeated)
    return Verdict((*checks, *bounds, *more))


def _of_chains(draws: Mapping[str, Floats], need: int, settings: SamplerSettings) -> list[Check]:
    """Whether the chains agree, and are long enough for ``need`` independent draws."""
    rhats = {name: rhat(d) for name, d in draws.items()}
    bulk = {name: ess(d, "bulk") for name, d in draws.items()}
    tail = {name: ess(d, "tail") for name, d in draws.items()}
    modes = "look at the posterior for several modes"
    apart = f"{more_warmup(settings)} and {more_samples(settings)}; or {modes}"
    short = {
        kind: f"{more_samples(settings, times_longer(need, min(of.values())))}; or {modes}"
        for kind, of in (("bulk", bulk), ("tail", tail))
    }
    checks = [
        _worst("rhat", rhats, lambda v: v < RHAT_LIMIT, max, f"below {RHAT_LIMIT}", apart),
        *(
            _worst(f"ess_{kind}", of, lambda v: v >= need, min, f"at least {need}", short[kind])
            for kind, of in (("bulk", bulk), ("tail", tail))
        ),
    ]
    steady = [name for name, d in draws.items() if several_modes(d)]
    if steady:
        checks.append(
            Check(
                "chains apart",
                float(len(steady)),
                "0 parameters",
                "failure",
                ", ".join(steady),
                "look at each chain: start all from one fit, or give priors that rule a mode out",
                "several-modes",
            )
        )
    return checks


def _of_sampler(sampler: Floats, settings: SamplerSettings) -> list[Check]:
    """Whether the sampler met divergences, its limit, or energies that it barely explored."""
    divergent = float(np.mean(sampler[:, :, 2]))
    deep = float(np.mean(sampler[:, :, 1] >= settings.max_treedepth))
    bfmi = _bfmi(sampler[:, :, 3])
    few = f"at most {STRAY_SHARE:g}, and at most {DIVERGENT_SHARE:g} to pass"
    rare = f"at most {TREEDEPTH_SHARE:g}"
    long = f"at least {EBFMI_LIMIT}"
    met = _met(
        "divergent share",
        divergent,
        divergent <= DIVERGENT_SHARE,
        few,
        shorter_steps(settings),
    )
    return [
        replace(met, severity="warning") if STRAY_SHARE < divergent <= DIVERGENT_SHARE else met,
        _met("treedepth share", deep, deep <= TREEDEPTH_SHARE, rare, deeper_trees(settings)),
        _met("e-bfmi", bfmi, bfmi >= EBFMI_LIMIT, long, more_warmup(settings)),
    ]


def _met(
    name: str, value: float, fine: bool, limit: str, advice: str, condition: str = "not-converged"
) -> Check:
    """The check of one number."""
    severity = "ok" if fine else "failure"
    return Check(name, value, limit, severity, advice=advice, condition=condition)


def _worst(
    name: str,
    values: Mapping[str, float],
    fine: object,
    pick: object,
    limit: str,
    advice: str,
) -> Check:
    """The check of the parameter with the worst value; NaN is the worst of all."""
    where = next((k for k, v in values.items() if np.isnan(v)), None)
    if where is None:
        where = pick(values, key=values.__getitem__)  # type: ignore[operator]
    value = values[where]
    ok = bool(fine(value))  # type: ignore[operator]
    severity = "ok" if ok else "failure"
    return Check(name, value, limit, severity, where, advice, "not-converged")


def _bfmi(energy: Floats) -> float:
    """Smallest energy Bayesian fraction of missing information over the chains."""
    between = np.sum(np.diff(energy, axis=1) ** 2, axis=1)
    within = np.sum((energy - energy.mean(axis=1, keepdims=True)) ** 2, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = between / within
    return float(np.min(ratio)) if np.all(np.isfinite(ratio)) else 0.0


def protection_notes(
    problem: Problem,
    weights: Weights | None,
    A: Floats,
    protection: str,
    *,
    phi: float,
    phi_from_start: bool,
    cov_model: str = "exponential",
) -> tuple[str, ...]:
    """What the user should know of a fit beside its verdict; nothing record-level.

    Parameters
    ----------
    problem, weights, A, protection
        As of the fit.
    phi
        Posterior median of the decay, or the value held.
    phi_from_start
        Whether the decay held is that of a fit with all records.
    cov_model
        Correlation function of the fit.
    """
    if weights is None:
        return ()
    notes = []
    flagged = np.flatnonzero(A < 1)
    if weights.n_flagged == 0:
        notes.append(
            "no record is flagged, so the copies are protected no better than unrestricted "
            "ones: "
            + (shared_places(problem, weights) or "lower the distance or raise the correlation")
        )
    if protection_of(protection).variance_returns and flagged.size > 1:
        tree = cKDTree(problem.sites[flagged])
        reach = correlation_distance(NEAR_CORRELATION, phi, cov_model)
        # Ordered pairs, each record with itself among them.
        near = (int(tree.count_neighbors(tree, reach)) - flagged.size) // 2
        if near:
            notes.append(
                f"{near} pairs of flagged records correlate by more than {NEAR_CORRELATION:g}: "
                "under preserving each counts as independent, so together they pull on the "
                "coefficients more than they should"
            )
    if protection_of(protection).flagged_leave and flagged.size:
        seen = {}
        if phi_from_start:
            seen["phi"] = "leave phi out, so that the unflagged records give it"
        if weights.rule not in ("own", "distance"):
            seen["the flags"] = "flag by a distance that you state"
        if seen:
            notes.append(
                f"{' and '.join(seen)} come from a fit that contains the flagged records: under "
                f"cut nothing else of theirs reaches the copies; {', and '.join(seen.values())}"
            )
    if weights.column is not None:
        notes.append(
            f"column {weights.column!r} holds the weights: it is withheld from the public copies"
        )
    return tuple(notes)
