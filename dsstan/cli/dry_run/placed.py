"""What a run with synthetic places would do, by what is known before anything is fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dsstan.cli.dry_run.plan import Plan
from dsstan.cli.options import Writing
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.placed import FROM_TABLE, PlacesOptions
from dsstan.copies.places.result import MOVED
from dsstan.core.display import chance_per_cent
from dsstan.core.spelling import spelled
from dsstan.models.checks.conditions import CONDITIONS
from dsstan.models.intensity.result import Intensity
from dsstan.release.publication.earlier_places import published_places
from dsstan.release.whole_folder import check_target
from dsstan.risk.places.finding import by_cell, finding
from dsstan.risk.places.known import KnownPlaces
from dsstan.risk.places.result import LAST_ALONE, NO_FLOOR, NO_LIMIT, NO_PRESENCE
from dsstan.table.mask.mask import Mask
from dsstan.table.mask.points import known_addresses
from dsstan.table.problem import Problem

__all__ = ["placed_plan"]

_MANY = 0.5
"""Share of lonely records beyond which the places of most inform nothing."""


def placed_plan(
    problems: Sequence[Problem],
    options: ReleaseOptions,
    places: PlacesOptions,
    mask: Mask,
    writing: Writing,
) -> Plan:
    """What a run would do.

    Raises CoordinateError or InputError where the records do not suit the mask.
    """
    problem = problems[-1]
    known = replace(places, surface="none").intensity(problem, mask)
    sizes = known.counts.sum(axis=1)
    what_found, chance = _found_before(problem, known)
    before = chance_per_cent(chance)
    which = "them" if len(problems) == 1 else "those of the last column"
    judged = f"not judged: {spelled('floor', '10%')} has {which} judged"
    what: dict[str, Any] = {
        "records": problem.n_records,
        "sites": problem.n_sites,
        "places": places.places,
        "groups": len(sizes),
        "smallest_group": int(sizes.min()),
        "cells": mask.n_cells,
        "cell_width": float(f"{mask.width:.3g}"),
        "unit": problem.unit,
        "lonely": int(known.lonely.sum()),
        "before_a_release": f"right {what_found} found with a chance of up to about {before}",
        "copies": options.copies,
        "values": judged if writing.floor is None else None,
        "folder": str(check_target(writing.out_folder)),
        "models": [one.formula for one in problems],
    }
    unjudged = _not_judged(problems, places, writing)
    warnings = [f"DISCLOSURE will be NOT JUDGED: {why}" for why in unjudged]
    if places.finding is not None and places.finding < chance:
        warnings.append(
            f"{spelled('finding', places.finding)} is below the chance of the right {what_found} "
            f"without a release, about {before}: allow more, or take another number of cells "
            f"({mask.n_cells} now)"
        )
    warnings += _of_groups(known, places)
    if mask.source == FROM_TABLE:
        warnings.append(f"mask-from-table: {CONDITIONS['mask-from-table']}")
    return Plan(what, None, "a release with synthetic places is not rehearsed", tuple(warnings))


def _found_before(problem: Problem, known: Intensity) -> tuple[str, float]:
    """What is found, and the largest chance of the right one by all other records, where cells are
    independent."""
    addresses, unlisted = known_addresses(known.mask, problem.sites)
    none = np.zeros((0, *known.counts.shape))
    found = by_cell(finding(KnownPlaces.of(known), none, addresses), unlisted)
    what = "address or cell" if unlisted.any() else "address"
    if addresses is None or unlisted.all():
        what = "cell"
    return what, float(found.address_before.max())


def _not_judged(problems: Sequence[Problem], places: PlacesOptions, writing: Writing) -> list[str]:
    """Why the verdict will be NOT JUDGED."""
    if (places.presence, places.finding, writing.floor) == (None, None, None):
        return [NO_LIMIT]
    why = []
    if places.presence is not None and places.places == MOVED:
        why.append(NO_PRESENCE)
    if writing.floor is None:
        why.append(NO_FLOOR)
    elif len(problems) > 1:
        why.append(
            f"{LAST_ALONE}, so model one column, or give a reason when you publish "
            '(dsstan publish --accept "REASON")'
        )
    former, unknown = published_places(problems[-1])
    listed = "dsstan ledger shows them"
    if unknown:
        why.append(
            f"earlier releases of this table ({unknown}) published its places or were not "
            f"assessed; {listed}"
        )
    bounded = places.finding is None and (places.presence is None or places.number != "kept")
    if former and not bounded:
        why.append(
            f"what earlier releases with synthetic places ({len(former)}) and this one say "
            f"together of a place is estimated, not bounded; {listed}"
        )
    return why


def _of_groups(known: Intensity, places: PlacesOptions) -> list[str]:
    """What groups and cells that are too small do to a release."""
    found = []
    share = float(known.lonely.mean())
    if share > _MANY:
        wider = spelled("cells", max(2, known.mask.n_cells // 2))
        found.append(
            f"{share:.0%} of the records are lonely, so that their places inform nothing: make "
            f"wider cells ({wider}; {known.mask.n_cells} now) or fewer groups"
        )
    alone = known.counts.sum(axis=1) == 1
    if alone.any() and places.places != MOVED and places.number != "kept":
        names = ", ".join(name for name, one in zip(known.groups, alone, strict=True) if one)
        found.append(
            f"groups of one record ({names}): any copy that has one tells that this person is in "
            "the table, with a Bayes factor of presence that is infinite. Merge them with others"
        )
    return found
