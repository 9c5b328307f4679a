"""Draw the copies: plain, of a chain, or of a table with gaps."""

from __future__ import annotations

from dsstan.copies.chain import synthesise_given
from dsstan.copies.draw import Drawing, draw_column
from dsstan.copies.imputation import synthesise_completed
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, check_count
from dsstan.models.result import Fit


def synthesise(
    fit: Fit,
    copies: int = 20,
    *,
    seed: int | None = None,
    effect: str = "auto",
    workers: int = 1,
    accept_failed: bool = False,
    accept_few_draws: bool = False,
    strict: bool = False,
    rounding: str = "auto",
    imputations: int | None = None,
    hide_gaps: bool = False,
    given: Synthesis | None = None,
    noise: float | Floats | None = None,
    progress: bool | None = None,
) -> Synthesis:
    """Replace the sensitive values by L posterior-predictive draws.

    Section 3.3 of Quick, Holan and Wikle (2018): one posterior draw a copy,
    w given y and that draw, then Y = X beta + effect + tau z.

    Parameters
    ----------
    fit
        Unrestricted or restricted.
    copies
        L. Draws are spread over all chains and none serves twice.
    seed
        Root seed; by default a fresh one of 128 bits.
    effect
        ``"w"`` or ``"w*"`` = A w; ``"auto"`` takes w* under ``paper`` with a
        finite gamma, and w otherwise, so that fully smoothed records get a draw
        from their conditional prior. ``"plug"`` fixes the effect of flagged
        records at 0: narrower copies, which reveal more of them than a draw would.
    workers
        Threads. The copies are the same bytes for any number.
    accept_failed
        Go on although the fit failed its verdict.
    accept_few_draws
        Go on although L is larger than the effective sample size.
    strict
        Refuse a fit whose verdict warns, too.
    rounding
        ``"auto"`` rounds the copies as the column is rounded, with its digits and its heaping
        (see :mod:`dsstan.table.rounding`); ``"none"`` leaves all digits. The type of the column
        rounds in any case.
    imputations
        M, where the response of some records is missing (``prepare(..., missing="draw")``),
        by default 5: the gaps are drawn M times, the model is fitted again to each completed
        table, and L / M copies are drawn from each, which must be a whole number from 2 on.
        :func:`dsstan.combine` pools them by the nested rule of Reiter (2004).
    hide_gaps
        Draw every record M times, not the gaps alone, each without its own value, so that the
        copies do not show who had none. Estimates vary more; see docs/howto/missing-values.md.
    given
        Copies of another column of the same table, as many as are drawn: copy l is drawn at the
        synthetic values of their copy l, and the result is the release of both (of all, where
        they were drawn given others). Their formula must not use this response.

    noise
        sd of independent noise added to each value of every copy, on the modelled scale (under
        log, 0.04 is about four per cent): one number, or one a record. An intruder's numbers
        count it (:func:`dsstan.assess`). For :func:`dsstan.fit` under the exact covariance, of
        one column without gaps.

    Raises
    ------
    ConvergenceError
        If the fit failed its verdict, or L exceeds the effective sample size.
    InputError
        If L is below 1 or above the number of draws, or the effect is unknown.
    """
    copies, workers = check_count("copies", copies), check_count("workers", workers)
    how = Drawing(
        seed=seed,
        effect=effect,
        workers=workers,
        accept_failed=accept_failed,
        accept_few_draws=accept_few_draws,
        strict=strict,
        rounding=rounding,
        progress=progress,
        noise=noise,
    )
    if noise is not None and (given is not None or fit.problem.n_missing):
        raise InputError("noise is added to the copies of one column without gaps: leave it out")
    if given is not None:
        if imputations is not None:
            raise InputError("imputations are for a missing response, which a chain can't have")
        if copies != given.copies:
            raise InputError(
                f"the given release has {given.copies} copies: ask for as many, not {copies}"
            )
        return synthesise_given(fit, given, how)
    if fit.problem.n_missing:
        return synthesise_completed(fit, copies, imputations, how, hide_gaps=hide_gaps)
    if hide_gaps:
        raise InputError("hide_gaps is for a missing response, and none is missing: leave it out")
    if imputations is not None:
        raise InputError("imputations are for a missing response, and none is missing")
    return draw_column(fit, copies, how, Synthesis)
