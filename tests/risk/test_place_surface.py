"""The numbers of places under a Gaussian surface against an intruder who samples."""

from __future__ import annotations

import numpy as np
import pytest
from places_by_sampling import SampledIntruder
from scipy.spatial.distance import cdist

from dsstan.models.intensity.posterior import CellModel, inverse
from dsstan.models.intensity.surface_law import SurfaceLaw
from dsstan.risk.places.evidence import evidence_of
from dsstan.risk.places.known import KnownPlaces

TENTH = 1.1
"""No intruder may beat a printed number by more."""

SILL = 1.5

PLANTED = {
    "one lonely record": ([9, 6, 0, 0, 3, 0, 0, 1], 1.0),
    "a pair": ([9, 6, 1, 0, 3, 0, 0, 2], 1.0),
    "two side by side": ([9, 6, 1, 0, 0, 0, 2, 2], 0.4),
    "a tower": ([2, 30, 2, 0, 1, 0, 1, 0], 1.0),
    "a hole in the mask": ([5, 5, 2, 0, 0, 0, 4, 3], 1.0),
}


def surface(covariance):
    """The law of one group with a held covariance of its cells."""
    C = len(covariance)
    law = SurfaceLaw(None, np.zeros((1, C)), np.zeros(C), np.arange(1))
    law.__dict__["model"] = CellModel(
        inverse(covariance.copy()), np.zeros(C), np.ones((1, C, 1)), np.zeros(1)
    )
    return law


def compare(name, copies, draws):
    counts, phi = PLANTED[name]
    table, places = np.array(counts, float), np.arange(8.0)[:, None]
    if name == "a hole in the mask":
        places[3:, 0] += 4.0
    covariance = SILL * (np.exp(-phi * cdist(places, places)) + 1e-9 * np.eye(8))
    intruder = SampledIntruder(covariance, 1, draws)
    informing = intruder.informing(table)
    rng = np.random.default_rng(5)
    released = [
        rng.multinomial(int(table.sum()), intruder.at(informing).chances(rng)).astype(float)
        for _ in range(copies)
    ]
    cell = np.repeat(np.arange(8), table.astype(int))
    group = np.zeros(len(cell), dtype=np.intp)
    known = KnownPlaces(surface(covariance), table[None], group, cell, held_back=1)
    (found,) = evidence_of(known, np.array(released)[:, None])
    log_factor = found.of_true_cell(found.log_factor)
    for row, at in enumerate(found.pairs.cells):
        true = intruder.log_present(released, table, at)
        assert log_factor[row] >= true - np.log(TENTH)
        after = intruder.chances(released, table, at)[at]
        assert found.posterior[row, at] >= after / TENTH


@pytest.mark.parametrize("name", ["a pair", "two side by side"])
def test_who_samples_does_not_beat_two_copies(name):
    compare(name, copies=2, draws=20_000)


@pytest.mark.nightly("an intruder who samples surfaces for 20 copies, five times")
@pytest.mark.parametrize("name", PLANTED)
def test_who_samples_does_not_beat_twenty_copies(name):
    compare(name, copies=20, draws=200_000)
