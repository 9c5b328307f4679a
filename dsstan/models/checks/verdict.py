"""One verdict on a fit, with its reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from dsstan.covariance.correlation import correlation_distance
from dsstan.covariance.likelihood_surface import TOLERANCE
from dsstan.covariance.protection import protection_of
from dsstan.models.checks.conditions import Check, at_bounds, several_modes
from dsstan.models.checks.diagnostics import ess, rhat
from dsstan.models.weights import Weights
from dsstan.table.problem import Problem

Floats = NDArray[np.float64]

RHAT_LIMIT = 1.01
ESS_PER_CHAIN = 100
EBFMI_LIMIT = 0.3
DIVERGENT_SHARE = 0.005
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
    max_treedepth: int,
    surface_error: float | None,
    phi_bounds: tuple[float, float] | None,
    r_bounds: tuple[float, float] | None,
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
    max_treedepth
        The sampler's limit.
    surface_error
        Largest error of the interpolated log density, or None where none is interpolated.
    phi_bounds
        Prior bounds of the decay, or None where it was held.
    r_bounds
        Range of tau_sq / sigma_sq, or None for a model without a nugget.
    more
        Checks of other things that belong into the verdict.
    """
    checks = [
        *_of_chains(draws, ESS_PER_CHAIN * len(sampler)),
        *_of_sampler(sampler, max_treedepth),
    ]
    if surface_error is not None:
        fine = surface_error < TOLERANCE
        limit, advice = f"below {TOLERANCE:g}", "ask for more nodes"
        checks.append(_met("surface error", surface_error, fine, limit, advice, "surface-error"))
    return Verdict((*checks, *at_bounds(draws, phi_bounds, r_bounds), *more))


def _of_chains(draws: Mapping[str, Floats], need: int) -> list[Check]:
    """Whether the chains agree, and are long enough for ``need`` independent draws."""
    rhats = {name: rhat(d) for name, d in draws.items()}
    bulk = {name: ess(d, "bulk") for name, d in draws.items()}
    tail = {name: ess(d, "tail") for name, d in draws.items()}
    longer = "run more iterations, or look at the posterior for several modes"
    checks = [
        _worst("rhat", rhats, lambda v: v < RHAT_LIMIT, max, f"below {RHAT_LIMIT}", longer),
        _worst("ess_bulk", bulk, lambda v: v >= need, min, f"at least {need}", longer),
        _worst("ess_tail", tail, lambda v: v >= need, min, f"at least {need}", longer),
    ]
    apart = [name for name, d in draws.items() if several_modes(d)]
    if apart:
        checks.append(
            Check(
                "chains apart",
                float(len(apart)),
                "0 parameters",
                "failure",
                ", ".join(apart),
                "look at each chain: start all from one fit, or give priors that rule a mode out",
                "several-modes",
            )
        )
    return checks


def _of_sampler(sampler: Floats, max_treedepth: int) -> list[Check]:
    """Whether the sampler met divergences, its limit, or energies that it hardly explored."""
    divergent = float(np.mean(sampler[:, :, 2]))
    deep = float(np.mean(sampler[:, :, 1] >= max_treedepth))
    bfmi = _bfmi(sampler[:, :, 3])
    few, rare = f"0, and at most {DIVERGENT_SHARE:g} to pass", f"at most {TREEDEPTH_SHARE:g}"
    long, deeper = f"at least {EBFMI_LIMIT}", "raise max_treedepth, or centre the covariates"
    met = _met("divergent share", divergent, divergent <= DIVERGENT_SHARE, few, "raise adapt_delta")
    return [
        replace(met, severity="warning") if 0 < divergent <= DIVERGENT_SHARE else met,
        _met("treedepth share", deep, deep <= TREEDEPTH_SHARE, rare, deeper),
        _met("e-bfmi", bfmi, bfmi >= EBFMI_LIMIT, long, "run a longer warm-up"),
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
            "ones: lower the distance or raise the correlation"
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
        seen = ["phi"] if phi_from_start else []
        seen += ["the flags"] if weights.rule != "own" else []
        if seen:
            notes.append(
                f"{' and '.join(seen)} come from a fit that contains the flagged records: under "
                "cut nothing else of theirs reaches the copies; give phi and your own weights "
                "for none"
            )
    if weights.column is not None:
        notes.append(
            f"column {weights.column!r} holds the weights: it is withheld from the public copies"
        )
    return tuple(notes)
