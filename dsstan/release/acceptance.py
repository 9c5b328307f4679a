"""Whether a release that misses its floor may be written, and why."""

from __future__ import annotations

import warnings

from dsstan.core.errors import CONTROL, DisclosureError, DsstanDeprecationWarning, InputError
from dsstan.release.verdicts import KEEP_APART
from dsstan.risk.assessment import Assessment

NO_REASON = "no reason was given"
"""What is kept where the floor's being missed was accepted without one."""


def check_reached(found: Assessment) -> None:
    """Refuse a release that misses its floor.

    Raises DisclosureError if a record is below it, or a value can be named too surely.
    """
    if found.verdict != "missed":
        return
    if found.laid_bare:
        raise DisclosureError(
            f"{'; '.join(found.laid_bare)}. Nothing was written: {KEEP_APART}, or accept it with "
            "accept_below_floor and a reason (--accept-below-floor --reason TEXT)"
        )
    remarks = found.floor_remarks()
    if not found.named_too_surely.size:
        remarks = remarks[:1]
    more = "flag or smooth more, "
    if not found.searched:
        more += 'let protection = "auto" search (--protection auto), '
    if found.hopeless:
        more = "leave a column or those records out, "
    elif found.largest_release:
        more = f"release fewer copies, {more}"
    raise DisclosureError(
        f"{'. '.join(remarks)}. Nothing was written: {more}lower the floor, or accept "
        "it with accept_below_floor and a reason (--accept-below-floor --reason TEXT)"
    )


def check_reason(accept: bool, reason: str | None) -> None:
    """Refuse, before anything is done, to accept a missed floor without a reason.

    Raises InputError.
    """
    if accept and reason is None:
        raise InputError(
            "a release below its floor is accepted for a reason: say it beside accept_below_floor "
            "(--reason TEXT)"
        )


def words_of(reason: str | None) -> str | None:
    """A reason as it is kept: on one line, without control characters."""
    return None if reason is None else " ".join(CONTROL.sub(" ", reason).split())


def accepted_reason(found: Assessment, accept: bool, reason: str | None) -> str | None:
    """The reason why a release that misses its floor is written all the same; None where it
    keeps the floor or was not judged.

    Raises DisclosureError if it misses the floor, and that is not accepted; InputError if there is
    a reason that is empty or for nothing.
    """
    words = words_of(reason)
    if words == "" or (words and not accept):
        raise InputError(
            "the reason says why a release below its floor is accepted: give it some words, and "
            "accept_below_floor (--accept-below-floor) beside it"
        )
    if not accept:
        check_reached(found)
    if found.verdict != "missed":
        return None
    if words is None:
        warnings.warn(
            "a release below its floor was accepted without a reason; the next version of dsstan "
            "refuses that: give reason=... (--reason TEXT)",
            DsstanDeprecationWarning,
            stacklevel=3,
        )
    return words or NO_REASON
