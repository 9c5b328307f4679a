"""Assess a release of places: both intruders, limits on what they learn, earlier releases."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from dsstan.copies.places.result import PlacedRelease
from dsstan.copies.synthesis import synthesise
from dsstan.core import above
from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, is_number
from dsstan.models.result import Fit
from dsstan.risk.assessment import Assessment, assess
from dsstan.risk.floors import FloorLike
from dsstan.risk.places.earlier import EarlierPlaces, rise_of_log_odds
from dsstan.risk.places.evidence import evidence_of
from dsstan.risk.places.finding import Finding, by_cell, of_group, spread
from dsstan.risk.places.known import KnownPlaces
from dsstan.risk.places.presence import log_presence
from dsstan.risk.places.result import PlaceAssessment
from dsstan.table.mask.points import known_addresses

__all__ = ["assess_counts", "assess_places", "values_as_if_kept"]


def assess_places(
    release: PlacedRelease,
    *,
    presence: float | None = None,
    finding: float | None = None,
    floor: FloorLike | None = None,
    earlier: Sequence[PlaceAssessment | EarlierPlaces] | None = None,
) -> PlaceAssessment:
    """What a release with synthetic places discloses of the presence and the place of every record.

    Parameters
    ----------
    release
        The copies.
    presence
        Largest Bayes factor of presence allowed, above 1, such as 3.
    finding
        Largest chance of the right address allowed, such as 0.1; of the right cell where the mask
        has no addresses, and for records whose place is none of them.
    floor
        What an intruder of values must be left with, such as ``"10%"``, of the column drawn last;
        see :func:`values_as_if_kept`.
    earlier
        Earlier releases of the same records; see :func:`assess_counts`. By default those that the
        ledger says were published (:mod:`dsstan.release.publication.earlier_places`); ``()`` for
        none.

    Raises
    ------
    InputError
        If a limit is none, an earlier release is of other records, or a floor is asked for where no
        column is modelled.
    """
    if floor is not None and not release.fits:
        raise InputError("a floor is about modelled values, and the release has none: leave it out")
    addresses, unlisted = known_addresses(release.intensity.mask, release.problem.sites)
    unknown = 0
    if earlier is None:
        earlier, unknown = above.call("published_places", release.problem, release.tables)
    found = assess_counts(
        KnownPlaces.of(release.intensity),
        release.counts,
        places=release.places,
        number=release.number,
        addresses=addresses,
        presence=presence,
        finding=finding,
        earlier=earlier,
    )
    values = None if floor is None else values_as_if_kept(release.fits[-1], release.copies, floor)
    return replace(
        found,
        found=by_cell(found.found, unlisted),
        unlisted=int(unlisted.sum()),
        index=release.problem.table.index,
        unknown=unknown,
        values=values,
        modelled=len(release.fits),
    )


def values_as_if_kept(
    fit: Fit, copies: int, floor: FloorLike | None = None, *, seed: int | None = None
) -> Assessment:
    """The intruder of values, as if the places had been published too.

    What values drawn at new places say of a person's value is not computed. In its stead stands
    the report of as many copies of the same model with every place kept, which an intruder can
    assign to each record. It is taken for the worse case; that it always is has not been proved.

    Parameters
    ----------
    fit
        The model of the response that the release was drawn from.
    copies
        L of the release.
    floor
        See :func:`dsstan.assess`.
    seed
        Of the copies with kept places, which are never published.
    """
    twin = synthesise(
        fit, copies, seed=seed, accept_failed=True, accept_few_draws=True, progress=False
    )
    return assess(twin, floor=floor, progress=False)


def assess_counts(
    known: KnownPlaces,
    released: Floats,
    *,
    places: str,
    number: str,
    addresses: Floats | None = None,
    presence: float | None = None,
    finding: float | None = None,
    earlier: Sequence[PlaceAssessment | EarlierPlaces] = (),
) -> PlaceAssessment:
    """What copies disclose of the presence and the place of every record.

    Parameters
    ----------
    known
        The table.
    released
        Records of each group in each cell of each copy, shape (L, K, C).
    places, number
        ``"moved"`` or ``"population"``; ``"kept"`` or ``"drawn"``.
    addresses
        How many addresses each cell has, shape (C,); None where places are uniform in a cell.
    presence
        Largest Bayes factor of presence allowed, above 1.
    finding
        Largest chance of the right address allowed, or of the right cell where there are none.
    earlier
        Earlier releases of the same records: their assessments, or what was kept of them. Those of
        the same law and the same informing records are counted exactly. Of others the rise of the
        odds is multiplied, a fall is not counted: no bound, as two releases may rule out different
        cells, so that a limit on what they say of a place is not judged.

    Raises
    ------
    InputError
        If a limit is none, or the counts or an earlier release are of something else.
    """
    begin = time.perf_counter()
    _check(known, places, number, presence, finding, earlier)
    same = [e for e in earlier if isinstance(e, PlaceAssessment) and _same(e, known, number)]
    others = [e for e in earlier if not any(e is one for one in same)]
    known.check_released(released)
    all_released = np.concatenate([*(e.released for e in same), released])
    present, found = [], []
    for evidence in evidence_of(known, all_released):
        present.append(log_presence(known, all_released, evidence, number))
        found.append(of_group(evidence, addresses))
    log_factor = spread(known, present)
    search = Finding(*(spread(known, column) for column in zip(*found, strict=True)))
    alone = None
    if others:
        alone = EarlierPlaces(log_factor, rise_of_log_odds(search.cell_before, search.cell))
    kept = [e.for_later if isinstance(e, PlaceAssessment) else e for e in others]
    for one in kept:
        log_factor = log_factor + np.maximum(one.log_presence, 0.0)
        search = _surer(search, one)
    with np.errstate(over="ignore"):
        factor = np.exp(log_factor)
    if others and number == "kept":
        factor = search.cell / search.cell_before
    return PlaceAssessment(
        known,
        released,
        places,
        number,
        factor,
        search,
        presence,
        finding,
        addresses is not None,
        len(earlier),
        time.perf_counter() - begin,
        alone=alone,
    )


def _check(
    known: KnownPlaces,
    places: str,
    number: str,
    presence: float | None,
    finding: float | None,
    earlier: Sequence[PlaceAssessment | EarlierPlaces],
) -> None:
    if places not in ("moved", "population") or number not in ("kept", "drawn"):
        raise InputError(
            'places must be "moved" or "population" and number "kept" or "drawn"; got '
            f"{places!r} and {number!r}"
        )
    if presence is not None and not (is_number(presence) and presence > 1.0):
        raise InputError(
            f"presence must be a Bayes factor above 1, such as 3: 1 is no news; got {presence!r}"
        )
    if finding is not None and not (is_number(finding) and 0.0 < finding < 1.0):
        raise InputError(f"finding must be a chance between 0 and 1, such as 0.1; got {finding!r}")
    for one in earlier:
        n = one.known.n_records if isinstance(one, PlaceAssessment) else len(one.log_odds)
        if n != known.n_records:
            raise InputError(
                f"an earlier release must be of the same {known.n_records} records in the same "
                f"order; got one of {n}"
            )


def _same(former: PlaceAssessment, known: KnownPlaces, number: str) -> bool:
    """Whether an earlier release was drawn from the same chances, given the same records."""
    one = former.known
    return (
        one.law is known.law
        and np.array_equal(one.informing, known.informing)
        and np.array_equal(one.cell_index, known.cell_index)
        and former.number == number
        and former.earlier == 0
    )


def _surer(search: Finding, former: EarlierPlaces) -> Finding:
    """The search with the odds of the right cell raised by an earlier release."""
    with np.errstate(divide="ignore", over="ignore"):
        odds = search.cell / (1.0 - search.cell) * np.exp(np.maximum(former.log_odds, 0.0))
        cell = np.where(np.isfinite(odds), odds / (1.0 + odds), 1.0)
    most = np.floor((1.0 + 1e-9) / cell)  # so many cells can have such a chance
    return replace(
        search,
        cell=cell,
        address=search.address * cell / search.cell,
        as_likely=np.minimum(search.as_likely, most),
        addresses=np.minimum(search.addresses, most * search.cell / search.address),
    )
