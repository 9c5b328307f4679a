"""A release of synthetic places beside the other methods, with the prior that all share."""

from __future__ import annotations

import numpy as np

from dsstan.analysis.places.marked import Groups, marked_release
from dsstan.comparison.places.result import ProtectedPlaces, copies_in_words
from dsstan.copies.places.result import PlacedRelease
from dsstan.core.arrays import Floats
from dsstan.models.intensity.result import Intensity
from dsstan.risk.places.assessment import assess_places
from dsstan.risk.places.evidence import evidence_of
from dsstan.risk.places.known import KnownPlaces
from dsstan.risk.places.result import PlaceAssessment


def released(
    release: PlacedRelease,
    found: PlaceAssessment | None = None,
    *,
    name: str = "synthetic",
    groups: Groups | None = None,
) -> ProtectedPlaces:
    """A release as :func:`dsstan.comparison.places.compare.compare_places` takes it.

    Parameters
    ----------
    release
        The copies.
    found
        Their assessment, where it is there already.
    name
        What the method is called in the table.
    groups
        See :func:`dsstan.analysis.places.marked.marked_release`.
    """
    assessment = assess_places(release) if found is None else found
    return ProtectedPlaces(
        name,
        f"{release.places}, {copies_in_words(release.copies)}",
        tuple(marked_release(release, groups)),
        assessment.found.cell,
        assessment.found.cell_before,
        bayes_factor=assessment.bayes_factor,
    )


def prior_of(intensity: Intensity) -> Floats:
    """Chance of each cell for each record by all others, which intruders have before a release.

    Shape (N, C): for tables whose records by cells fit in memory, as comparisons need them.
    """
    known = KnownPlaces.of(intensity)
    nothing = np.zeros((0, *intensity.counts.shape))
    out = np.empty((known.n_records, intensity.mask.n_cells))
    for evidence in evidence_of(known, nothing):
        pairs = evidence.pairs
        out[pairs.records] = evidence.prior[pairs.which]
    return out
