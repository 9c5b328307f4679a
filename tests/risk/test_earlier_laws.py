"""Two releases of one table that were drawn from different laws."""

from __future__ import annotations

import numpy as np
import pytest

from dsstan.models.intensity.cell_law import IndependentCells
from dsstan.risk.places.assessment import assess_counts
from dsstan.risk.places.known import KnownPlaces

CELLS, RECORDS = 12, 40


def two_releases(seed, number, **limits):
    """Assessments of a second release that counts the first, whose prior was another."""
    rng = np.random.default_rng(seed)
    cell = rng.choice(CELLS, size=RECORDS, p=rng.dirichlet(np.full(CELLS, 0.7)))
    counts = np.bincount(cell, minlength=CELLS)[None].astype(float)
    group, found = np.zeros(RECORDS, dtype=np.int64), ()
    for prior in (0.5, 2.0):
        known = KnownPlaces(
            IndependentCells(np.full((1, CELLS), prior)), counts, group, cell.astype(np.int64)
        )
        chances = known.law.draws(known.informing, 3, rng)[:, 0]
        released = np.stack([rng.multinomial(RECORDS, p) for p in chances])[:, None].astype(float)
        how = {"places": "population", "number": number, **limits}
        found = (*found, assess_counts(known, released, earlier=found[-1:], **how))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_a_kept_number_has_the_factor_of_its_two_chances(seed):
    """The fall of one release and the rise of the other are counted alike in both numbers."""
    first, both = two_releases(seed, "kept")
    for one in (first, both):
        np.testing.assert_allclose(one.bayes_factor, one.found.cell / one.found.cell_before)
    assert np.all(both.found.cell * both.found.as_likely <= 1.0 + 1e-6)
    assert not np.array_equal(first.bayes_factor, both.bayes_factor)


def test_drawn_numbers_multiply_and_no_fall_is_counted():
    first, both = two_releases(1, "drawn")
    alone = both.of_this_release.log_presence
    risen = np.maximum(np.log(first.bayes_factor), 0.0)
    np.testing.assert_allclose(np.log(both.bayes_factor), alone + risen, atol=1e-9)


@pytest.mark.parametrize(
    ("number", "limits", "verdict"),
    [
        ("drawn", {"finding": 0.999999}, "NOT JUDGED"),
        ("kept", {"presence": 1e6}, "NOT JUDGED"),
        ("drawn", {"presence": 1e12}, "MET"),
        ("drawn", {"finding": 1e-3}, "MISSED"),
    ],
)
def test_what_two_laws_say_of_a_place_together_has_no_bound(number, limits, verdict):
    first, both = two_releases(2, number, **limits)
    assert both.verdict == verdict
    assert ("estimated, not bounded" in both.why) == ("presence" not in limits or number == "kept")
    assert first.verdict != "NOT JUDGED"
