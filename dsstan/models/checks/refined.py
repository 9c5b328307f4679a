"""Whether Vecchia's likelihood came near enough to the exact one, and what that moved."""

from __future__ import annotations

from collections.abc import Sequence

from dsstan.core.spelling import spelled
from dsstan.covariance.vecchia.refinement import ENOUGH, MOST_ROWS, MOVED, Refinement
from dsstan.models.checks.conditions import Check

__all__ = ["refinement_checks", "refinement_notes"]


def refinement_checks(refinement: Refinement | None, terms: Sequence[str]) -> list[Check]:
    """Whether a posterior mean may still move; of another covariance there is nothing to check.

    Parameters
    ----------
    refinement
        Of the fit.
    terms
        Of its formula.
    """
    if refinement is None or not refinement.moved:
        return []
    return [
        Check(
            "move of a mean still to expect, in sds",
            refinement.left,
            f"at most {MOVED:g}",
            "ok" if refinement.left <= MOVED else "failure",
            _names(terms)[refinement.where],
            'ask for more neighbours, up to 200, or for covariance="exact" if the memory allows it',
            "approximation-error",
        )
    ]


def refinement_notes(refinement: Refinement | None, terms: Sequence[str]) -> list[str]:
    """What a user should know where Vecchia's likelihood alone would have moved a mean."""
    if refinement is None:
        return []
    if not refinement.moved:
        return [
            f"of more than {MOST_ROWS:,} sites the likelihood of {refinement.by} neighbours is not "
            "compared with that of more, which may move a posterior mean by about its sd: "
            f"{spelled('neighbours', ENOUGH)} is nearer to the exact one"
        ]
    most = refinement.moved[refinement.most_moved]
    if abs(most) <= MOVED:
        return []
    exact = refinement.by == "exact"
    law = "the exact one" if exact else f"that of {refinement.by} neighbours"
    return [
        f"the likelihood of {refinement.neighbours} neighbours would have put the posterior mean "
        f"of {_names(terms)[refinement.most_moved]} {abs(most):.2f} of its sd too "
        f"{'low' if most > 0 else 'high'}. It was replaced by {law}"
    ]


def _names(terms: Sequence[str]) -> list[str]:
    """What the moves are of."""
    return ["log phi", "log sigma_sq", "log tau_sq", *terms]
