"""Draw the copies: plain, of a chain, or of a table with gaps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, overload

from dsstan.copies.chain import synthesise_given
from dsstan.copies.draw import Drawing, draw_column
from dsstan.copies.imputation import synthesise_completed
from dsstan.copies.places.draw import move_places, synthesise_population
from dsstan.copies.places.result import KEPT, MOVED, PLACES, PlacedRelease
from dsstan.copies.result import Synthesis
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, check_count
from dsstan.core.spelling import spelled
from dsstan.models.intensity.result import Intensity
from dsstan.models.result import Fit


@overload
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
    places: Literal["kept"] = "kept",
) -> Synthesis: ...


@overload
def synthesise(
    fit: Fit | Sequence[Fit],
    copies: int = 20,
    *,
    places: Literal["moved", "population"],
    intensity: Intensity,
    **options: Any,
) -> PlacedRelease: ...


def synthesise(
    fit: Fit | Sequence[Fit],
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
    places: str = KEPT,
    intensity: Intensity | None = None,
    **of_places: Any,
) -> Synthesis | PlacedRelease:
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
    places
        ``"kept"`` publishes every place as it is. ``"moved"`` and ``"population"`` draw synthetic
        places from ``intensity``, and give another kind of release; see
        :func:`dsstan.copies.places.draw.move_places` and
        :func:`dsstan.copies.places.draw.synthesise_population`.
    intensity
        Where the records are, by ``dsstan.models.intensity``.
    of_places
        What else these two take: ``number``, ``groups``, ``problem``, ``accept_place``.

    Raises
    ------
    ConvergenceError
        If the fit failed its verdict, or L exceeds the effective sample size.
    InputError
        If L is below 1 or above the number of draws, or the effect is unknown.
    """
    copies, workers = check_count("copies", copies), check_count("workers", workers)
    if places != KEPT:
        given_here = {
            "effect": effect != "auto",
            "imputations": imputations is not None,
            "hide_gaps": hide_gaps,
            "given": given is not None,
            "noise": noise is not None,
        }
        _check_placed(places, intensity, [name for name, there in given_here.items() if there])
        assert intensity is not None
        of_places |= {
            "seed": seed,
            "accept_failed": accept_failed,
            "accept_few_draws": accept_few_draws,
            "strict": strict,
            "rounding": rounding,
            "progress": progress,
        }
        if places == MOVED:
            return move_places(intensity, fit, copies, **of_places)
        fits = (fit,) if isinstance(fit, Fit) else fit
        return synthesise_population(intensity, fits, copies, **of_places)
    if intensity is not None or of_places:
        name = "intensity" if intensity is not None else next(iter(of_places))
        raise InputError(f"{name} belongs to synthetic places, and they are kept: leave it out")
    if not isinstance(fit, Fit):
        raise InputError("several fits at once are for synthetic places: use given for a chain")
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


def _check_placed(places: str, intensity: Intensity | None, given: list[str]) -> None:
    """Refuse synthetic places without an intensity, or with what only kept places have.

    Raises InputError if so.
    """
    if places not in PLACES:
        raise InputError(f"places must be one of {', '.join(PLACES)}, got {places!r}")
    if intensity is None:
        raise InputError(
            f"{spelled('places', places)} needs intensity=, where the records are on the cells of "
            "a mask: see dsstan.models.intensity"
        )
    if given:
        raise InputError(
            f"{given[0]} is for places that are kept: leave it out, or give "
            f"{spelled('places', KEPT)}"
        )
