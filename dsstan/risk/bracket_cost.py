"""What kept brackets disclose beyond the same copies without them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from dsstan.copies.result import Synthesis
from dsstan.copies.synthesis import synthesise
from dsstan.core.arrays import Floats
from dsstan.core.seeds import COMPARISON, seed_of, stream
from dsstan.covariance.copy_law import projection
from dsstan.covariance.eigenbasis import alone
from dsstan.covariance.latent import LatentModel
from dsstan.models.brackets.fit import bracketed
from dsstan.models.brackets.result import BracketedFit
from dsstan.models.brackets.truncation import truncated_sd
from dsstan.models.posterior import parameters_at, spread_draws
from dsstan.models.result import Fit
from dsstan.risk.disclosure import RELATIVE, check_tolerances, within

__all__ = ["bracket_cost", "sd_left"]


DRAWS = 50
"""Posterior draws behind the sds."""


def bracket_cost(
    release: Synthesis, *, relative: float = RELATIVE, absolute: float | None = None
) -> pd.DataFrame:
    """The extra disclosure of kept brackets, one row a bracket and one for all. Confidential.

    Parameters
    ----------
    release
        Copies from a fit of :func:`dsstan.models.brackets.fit.fit_bracketed`.
    relative
        A copy is near where it is within this share of the truth,
    absolute
        or, where given, within this distance on the response's own scale.

    Returns
    -------
    DataFrame
        ``bracket`` in words; ``records``; ``width``, infinite where an end is open; ``near``,
        the share of copies near the truth; ``near_without``, that of as many copies from the same
        posterior without brackets; and on the modelled scale, averaged over posterior draws and
        records, ``sd_others``, what an intruder who knows all other records and the parameters,
        but no
        copy, does not know of a record, and ``sd_bracket``, what is left when they learn its
        bracket.

    Raises
    ------
    InputError
        If the release has no brackets, or a tolerance is negative.
    """
    fit = bracketed(release.fit, "bracket_cost")
    check_tolerances(relative, absolute)
    problem, kept = release.problem, fit.brackets
    truth = problem.original()
    tolerance = relative * np.abs(truth) if absolute is None else absolute
    bare = synthesise(
        fit.without_brackets,
        release.copies,
        seed=seed_of(stream(release.seed, COMPARISON, b"without brackets")),
        effect=release.effect,
        accept_failed=True,
        accept_few_draws=True,
        rounding="none" if release.rounding is None else "auto",
        progress=False,
    )
    near, without = (within(each.values, truth, tolerance) for each in (release, bare))
    others, bracket = sd_left(fit)
    rows: list[dict[str, Any]] = []
    groups = [
        (word, high - low, kept.number == k)
        for k, (word, low, high) in enumerate(zip(kept.words(), kept.low, kept.high, strict=True))
    ]
    for word, width, members in [*groups, ("all", np.inf, np.ones(truth.size, dtype=bool))]:
        if members.any():
            measured = {
                "near": near,
                "near_without": without,
                "sd_others": others,
                "sd_bracket": bracket,
            }
            means = {name: float(values[members].mean()) for name, values in measured.items()}
            rows.append(
                {"bracket": word, "records": int(members.sum()), "width": float(width), **means}
            )
    return pd.DataFrame(rows)


def sd_left(fit: BracketedFit, *, draws: int = DRAWS) -> tuple[Floats, Floats]:
    """What all other records leave unknown of each, before and after its bracket is known.

    Given the parameters, y_i has under the unrestricted model, all others known, the variance
    1 / P_ii about y_i - (P y)_i / P_ii, with P = V^-1 - V^-1 X (X' V^-1 X)^-1 X' V^-1. The
    bracket cuts this normal. Roots of the mean variances over the draws of the unrestricted fit.

    Returns
    -------
    tuple of ndarray
        Two of shape (N,), on the modelled scale; infinite where a record has a coefficient of
        its own and its bracket an open end.
    """
    free: Fit = fit if fit.start is None else fit.start
    problem, kept = fit.problem, fit.brackets
    model, y, own = LatentModel(free.model_with()), problem.y, alone(problem.X)
    before, after = np.zeros(y.size), np.zeros(y.size)
    picks = spread_draws(free, min(draws, free.n_draws))
    with threadpool_limits(limits=1, user_api="blas"):
        for chain, iteration in picks:
            p = parameters_at(free, int(chain), int(iteration))
            P = projection(model, p)
            precision = np.diag(P)
            with np.errstate(divide="ignore", invalid="ignore"):
                sd = np.where(own, np.inf, 1.0 / np.sqrt(precision))
                mean = np.where(own, y, y - (P @ y) / precision)
            finite = np.where(own, 1.0, sd)
            cut = truncated_sd(mean, finite, kept.low_modelled, kept.high_modelled)
            flat = (kept.high_modelled - kept.low_modelled) / np.sqrt(12.0)
            before += sd**2
            after += np.where(own, flat, cut) ** 2
    return np.sqrt(before / len(picks)), np.sqrt(after / len(picks))
