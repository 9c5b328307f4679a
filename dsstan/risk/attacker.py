"""What the whole release tells one who knows all the other records.

The paper looks at one copy at a time. Here an intruder knows every other y and
sees all L copies. Given the variances everything is normal, so his posterior
of y_i is exact:

    precision_i = P_ii + sum_l h_i' Vs^-1 h_i

P_ii is the leave-one-out precision of the unrestricted model, h_i the i-th
column of H = dE[copy]/dy, and Vs the covariance of a copy given y. The
variances were estimated from data that hold y_i, so their draws speak as well:
one who knows them gains Var((P y)_i) a copy, one who does not gains less. These
gains are taken at the y_i that is true, so the posterior they describe is a
normal approximation: it is good once L copies leave an sd over which
Var((P y)_i) hardly changes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from threadpoolctl import threadpool_limits

from dsstan.copies.synthesis import Synthesis
from dsstan.core.errors import InputError
from dsstan.core.progress import progress_bar
from dsstan.covariance.approximations import is_approximated
from dsstan.covariance.eigenbasis import BATCH, HeldBasis, Terms, applies
from dsstan.covariance.latent import (
    LatentModel,
    Parameters,
    latent_models,
    parameters_at,
    require_complete,
    require_gaussian,
    require_one_column,
    spread_draws,
)
from dsstan.covariance.vecchia.exposure import left_out, local_draws, local_terms
from dsstan.models.fit import Fit
from dsstan.models.predictive import EFFECTS, carried_effect
from dsstan.risk.leave_one_out import (
    DRAWS,
    MeanTerms,
    averaged_draws,
    covariance_factor,
    unrestricted_terms,
)

Floats = NDArray[np.float64]

SLOW_DRAWS, LARGE_DRAWS, LARGE = 100, 20, 500
"""Draws to average over where no eigenbasis serves, and beyond so many records."""

MOST_COPIES = 10**9
"""Answer where no number of copies is too many."""


@dataclass(frozen=True, eq=False)
class CopyLaw:
    """Law of one copy given y and one draw of the parameters' variances.

    Attributes
    ----------
    H
        dE[copy]/dy, shape (N, N); column i is what record i does to the copy.
        Columns of records that left the fit (``cut``) are zero.
    Vs
        Covariance of the copy given y, shape (N, N), the coefficients'
        uncertainty included.
    score
        (P y)_i with P of the fitted model, shape (N,): minus the derivative by y_i
        of the log likelihood of the variances, zero for records that left the fit.
    """

    H: Floats
    Vs: Floats
    score: Floats


def copy_law(model: LatentModel, p: Parameters, carried: Floats) -> CopyLaw:
    """Mean map and covariance of a copy under flat priors of the coefficients.

    Parameters
    ----------
    model
        Of the fit the copies come from.
    p
        One draw; its coefficients are integrated out.
    carried
        Factor on w in the copies, shape (N,); see
        :func:`dsstan.models.predictive.carried_effect`.
    """
    fit = model.fit
    n = fit.problem.n_records
    rows, a, X, Xr = model.rows, model.a_rows, fit.problem.X, model.X
    R, _, M = model._parts(p.phi)
    factor = covariance_factor(M, p)
    K = p.sigma_sq * R[np.ix_(model.site, model.site)]
    KA = carried[:, None] * K[:, rows] * a
    gain = cho_solve(factor, KA.T, check_finite=False).T  # c K A V^-1
    VX = cho_solve(factor, Xr, check_finite=False)
    G = np.linalg.inv(Xr.T @ VX)
    B = G @ VX.T
    J = X - gain @ Xr
    H = np.zeros((n, n))
    H[:, rows] = gain + J @ B
    Vs = carried[:, None] * K * carried - gain @ KA.T + J @ G @ J.T
    Vs[np.diag_indices_from(Vs)] += p.tau_sq
    score = np.zeros(n)
    residual = model.y - Xr @ (B @ model.y)
    score[rows] = cho_solve(factor, residual, check_finite=False)
    return CopyLaw(H, 0.5 * (Vs + Vs.T), score)


class _Source:
    """The terms of any draw of a fit, by the eigenbasis where it applies."""

    def __init__(self, fit: Fit, effect: str) -> None:
        self.fit, self.effect = fit, carried_effect(fit, effect)[1]
        self.fast = HeldBasis(fit) if applies(fit, self.effect) else None
        self.models = None if self.fast else latent_models(fit)

    def terms(self, points: Sequence[Parameters]) -> Iterator[Terms]:
        """Information, exposure and score of every record at each of some draws."""
        if self.fast is not None:
            for start in range(0, len(points), BATCH):
                yield from self.fast.batch(points[start : start + BATCH])
        else:
            yield from map(self._densely, points)

    def _densely(self, p: Parameters) -> Terms:
        """The terms at one draw, in O(N^3)."""
        assert self.models is not None
        model = self.models(p)
        assert isinstance(model, LatentModel)
        carried, _ = carried_effect(self.fit.at(p), self.effect)
        law = copy_law(model, p, carried)
        root = np.linalg.cholesky(law.Vs)
        z = solve_triangular(root, law.H, lower=True, check_finite=False)
        return Terms(np.einsum("ij,ij->j", z, z), np.diag(law.H).copy(), law.score)


@dataclass(frozen=True, eq=False)
class Attack:
    """An intruder's posterior sd of every record, on the modelled scale. Confidential.

    Attributes
    ----------
    leave_one_out
        sd without any copy, shape (N,); infinite where a record has a coefficient
        of its own.
    information
        Mean information one copy gives on y_i with the variances fixed, shape (N,).
    leak
        Information one draw of the variances gives to one who knows it, shape (N,).
    error
        Monte Carlo standard error of ``information + leak``, shape (N,).
    exposure
        h_ii, shape (N,).
    draws, effective
        Posterior draws averaged over; of them, at most as many count for an error as the
        fit's effective sample size.
    left_out
        Where the terms come from the records around each
        (:mod:`dsstan.covariance.vecchia.exposure`), how much larger the sd is at most, in a sample
        of records, than with three times as many around; it errs on the unsafe side. Floors are
        held against an sd smaller by that much. None where the terms are exact.
    """

    leave_one_out: Floats = field(repr=False)
    information: Floats = field(repr=False)
    leak: Floats = field(repr=False)
    error: Floats = field(repr=False)
    exposure: Floats = field(repr=False)
    flagged: NDArray[np.bool_] = field(repr=False)
    index: pd.Index = field(repr=False)
    copies: int
    draws: int
    effective: float
    seconds: float
    left_out: float | None = None

    def sd(self, copies: int | None = None, *, variances: str = "fixed") -> Floats:
        """Posterior sd of each y_i after L copies, shape (N,).

        Parameters
        ----------
        copies
            L; by default the number planned.
        variances
            ``"fixed"``: their draws tell nothing, the upper bound; ``"known"``:
            the intruder knows each, the lower bound. One who does not know
            them learns something between. About a record whose value is
            unremarkable, so that the bounds meet, he may learn a few per cent
            less than either: he does not know a copy's variances.
        """
        count = self.copies if copies is None else copies
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 0:
            raise InputError("copies must be a whole number from 0 on")
        precision = self.leave_one_out**-2 + count * self._of_one_copy(variances)
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / np.sqrt(precision))

    def relative_error(self) -> Floats:
        """Monte Carlo error of the sd after the planned L copies, known variances, by the sd."""
        precision = self.sd(variances="known") ** -2
        error = self.error * np.sqrt(self.draws / self.effective)
        return np.asarray(0.5 * self.copies * error / precision)

    def _of_one_copy(self, variances: str) -> Floats:
        """Information of one copy, shape (N,)."""
        if variances not in ("fixed", "known"):
            raise InputError('variances must be "fixed" or "known"')
        return self.information + (self.leak if variances == "known" else 0.0)

    def largest_release(self, floor: float, *, variances: str = "known") -> int:
        """Most copies for which every record's sd stays at or above a floor; 0 if none.

        Never more than 10^9, the answer where no number of copies is too many.

        Parameters
        ----------
        floor
            On the modelled scale: under log, 0.1 is about ten per cent.
        variances
            As in :meth:`sd`; the cautious choice is the default.
        """
        if not (np.isfinite(floor) and floor > 0):
            raise InputError("the floor must be positive and finite")
        one = self._of_one_copy(variances)
        floor *= 1.0 + (self.left_out or 0.0)
        room = floor**-2 - self.leave_one_out**-2
        if np.any(room < 0):
            return 0
        with np.errstate(divide="ignore"):
            most = np.where(one > 0, room / one, np.inf)
        # The quotient may fall short of a whole number by rounding alone.
        return int(np.floor(min(float(np.min(most)), MOST_COPIES) * (1 + 1e-12)))

    def table(self, copies: Sequence[int] | None = None) -> pd.DataFrame:
        """One row a record: exposure, and sds without copies and after L of them."""
        planned = sorted({1, self.copies, 500}) if copies is None else list(copies)
        out = pd.DataFrame(
            {
                "flagged": self.flagged,
                "exposure": self.exposure,
                "leave_one_out": self.leave_one_out,
            },
            index=self.index,
        )
        for count in planned:
            out[f"fixed_{count}"] = self.sd(count)
            out[f"known_{count}"] = self.sd(count, variances="known")
        return out

    def curve(self, copies: Sequence[int] = (1, 2, 5, 10, 20, 50, 100, 200, 500)) -> pd.DataFrame:
        """Smallest and median sd against L, for flagged and for other records."""
        rows = []
        for count in copies:
            for variances in ("fixed", "known"):
                sd = self.sd(count, variances=variances)
                for group, members in (("flagged", self.flagged), ("unflagged", ~self.flagged)):
                    if members.any():
                        rows.append(
                            (count, variances, group, sd[members].min(), np.median(sd[members]))
                        )
        return pd.DataFrame(rows, columns=["copies", "variances", "group", "smallest", "median"])

    def __str__(self) -> str:
        table = self.table()
        text = table.groupby("flagged").min().to_string(float_format=lambda v: f"{v:.3g}")
        out = (
            "Smallest sd left to an intruder who knows all other records\n"
            f"(modelled scale, {self.draws} posterior draws)\n{text}"
        )
        if self.left_out is None:
            return out
        return (
            f"{out}\nfrom the records around each; in a sample, with three times as many around, "
            f"the sd is smaller by {100 * self.left_out:.2g}% at most"
        )


def attack(
    release: Synthesis | Fit,
    *,
    against: Fit | None = None,
    copies: int | None = None,
    effect: str = "auto",
    draws: int | None = None,
    progress: bool | None = None,
) -> Attack:
    """What one who knows all other records learns of each from the whole release.

    Parameters
    ----------
    release
        The copies, or a fit from which copies are planned.
    against
        The unrestricted fit of the leave-one-out benchmark; by default the one
        the release's fit started from.
    copies
        L planned; by default the release's.
    effect
        For a fit: as in :func:`dsstan.synthesise`.
    draws
        Posterior draws to average the information over, spread evenly over the
        chains; at least 2. By default 400 where an eigenbasis serves (an unrestricted
        fit, or a held decay with records smoothed fully or not at all), else 100, of
        more than 500 records 20; under an approximated covariance 8, of more than 20,000
        records 4.

    Raises
    ------
    InputError
        If there is no unrestricted fit to compare with, or an argument is out of
        range.
    """
    begin = time.perf_counter()
    fit, free, planned, effect = planned_release(release, against, copies, effect)
    carried = carried_effect(fit, effect)[1]
    unrestricted = fit.kind == "unrestricted" and carried == "w"
    if draws is None and is_approximated(fit.covariance):
        draws = local_draws(fit)
    elif draws is None:
        slow = LARGE_DRAWS if fit.problem.n_records > LARGE else SLOW_DRAWS
        draws = DRAWS if unrestricted or applies(fit, carried) else slow
    picks = averaged_draws(fit, draws)
    with (
        threadpool_limits(limits=1, user_api="blas"),
        progress_bar("attack", progress) as advance,
    ):
        alone = unrestricted_terms(free, DRAWS)  # one benchmark, whatever the copies need
        own = unrestricted_terms(fit, draws) if unrestricted else _averaged(fit, effect, picks)
        advance(1.0)
    with np.errstate(divide="ignore"):
        leave_one_out = 1.0 / np.sqrt(alone.precision)
    return Attack(
        leave_one_out=leave_one_out,
        information=own.information,
        leak=own.leak,
        error=own.error,
        exposure=own.exposure,
        flagged=fit.flagged,
        index=fit.problem.table.index,
        copies=planned,
        draws=len(picks),
        effective=_effective(fit, len(picks)),
        seconds=time.perf_counter() - begin,
        left_out=_left_out(fit, free, effect, planned),
    )


def _left_out(fit: Fit, free: Fit, effect: str, copies: int) -> float | None:
    """What the surroundings leave out, at one draw; None under the exact covariance."""
    if not is_approximated(fit.covariance):
        return None
    places = [spread_draws(one, 2)[0] for one in (fit, free)]
    own, unrestricted = (
        parameters_at(one, int(chain), int(iteration))
        for one, (chain, iteration) in zip((fit, free), places, strict=True)
    )
    return left_out(fit, own, carried_effect(fit, effect)[0], copies, free, unrestricted)


def _effective(fit: Fit, draws: int) -> float:
    """Draws that count as independent, at least 2."""
    size = fit.worst_ess
    return float(max(2.0, min(draws, size))) if np.isfinite(size) else 2.0


def _averaged(fit: Fit, effect: str, picks: NDArray[np.intp]) -> MeanTerms:
    """The terms of one fit over its draws."""
    points = [parameters_at(fit, int(chain), int(iteration)) for chain, iteration in picks]
    nothing = np.full(fit.problem.n_records, np.nan)
    if is_approximated(fit.covariance):
        carried = carried_effect(fit, effect)[0]
        return MeanTerms.over(nothing, [one.terms for one in local_terms(fit, points, carried)])
    return MeanTerms.over(nothing, list(_Source(fit, effect).terms(points)))


def planned_release(
    release: Synthesis | Fit, against: Fit | None, copies: int | None, effect: str
) -> tuple[Fit, Fit, int, str]:
    """The fit, the unrestricted fit to compare with, L and the effect, all checked.

    Raises
    ------
    InputError
        If there is no unrestricted fit of the same problem, L is not a whole
        number from 1 on, or the effect is unknown.
    """
    fit = release.fit if isinstance(release, Synthesis) else release
    require_gaussian(fit)
    require_complete(fit.problem)
    if isinstance(release, Synthesis):
        require_one_column(release)
    planned = copies
    if isinstance(release, Synthesis):
        effect, planned = release.effect, release.copies if copies is None else copies
    planned = 1 if planned is None else planned
    whole = isinstance(planned, int | np.integer) and not isinstance(planned, bool)
    if not whole or planned < 1:
        raise InputError("copies must be a whole number of at least 1")
    if effect not in EFFECTS:
        raise InputError(f"effect must be one of {', '.join(EFFECTS)}, got {effect!r}")
    free = against or (fit if fit.kind == "unrestricted" else fit.start)
    if free is None:
        raise InputError("give against, the unrestricted fit of the same problem")
    if free.problem is not fit.problem:
        raise InputError("against is of another problem; both must come from the same prepare()")
    if free.kind != "unrestricted":
        raise InputError("the leave-one-out benchmark comes from the unrestricted fit")
    return fit, free, int(planned), effect
