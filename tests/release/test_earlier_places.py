"""What a published release said of places counts in the next one of the table."""

from __future__ import annotations

import numpy as np
import pytest
from placed_tables import home_fit, home_intensity, home_problem, homes, unit_mask

from dsstan.copies.places.draw import move_places
from dsstan.release.publication.earlier_places import published_places
from dsstan.release.publication.ledger import open_ledger
from dsstan.release.publication.ledger_report import tables_in
from dsstan.release.publication.publish import publish
from dsstan.risk.places.assessment import assess_places
from dsstan.risk.places.result import NOT_JUDGED

ROUNDING = 1e-9


@pytest.fixture(scope="module")
def problem():
    return home_problem(homes(60))


def test_the_ledger_hands_the_next_release_what_the_last_one_said(problem, tmp_path):
    fit, intensity = home_fit(problem), home_intensity(problem, unit_mask(3))
    first = move_places(intensity, fit, 3, seed=1)
    found = assess_places(first, finding=0.99)
    assert (found.earlier, found.too_sure[1].any(), found.verdict) == (0, False, NOT_JUDGED)
    assert "values are not judged" in found.why
    folder = first.write(tmp_path / "out", assessment=found)
    publish(folder, to=tmp_path / "public", reason="a test")

    (table,) = tables_in(open_ledger())
    assert (table.placed, table.left) == ((True,), None)

    former, unknown = published_places(problem)
    assert unknown == 0
    (former,) = former
    at = np.lexsort((problem.coords[:, 1], problem.coords[:, 0]))  # no two share a place
    np.testing.assert_allclose(former.log_odds[at], found.log_odds[at], rtol=ROUNDING)
    assert assess_places(first, finding=0.99).earlier == 0  # itself is no former one

    second = move_places(intensity, fit, 3, seed=2)
    alone, both = (assess_places(second, finding=0.99, earlier=e) for e in ((), None))
    assert both.earlier == 1
    odds = both.found.cell / (1 - both.found.cell) * (1 - alone.found.cell) / alone.found.cell
    np.testing.assert_allclose(odds, np.exp(np.maximum(found.log_odds, 0)), rtol=1e-6)
    np.testing.assert_allclose(both.of_this_release.log_odds, alone.log_odds, rtol=ROUNDING)


def test_after_a_release_that_nobody_assessed_no_limit_is_judged(problem, tmp_path):
    fit, intensity = home_fit(problem), home_intensity(problem, unit_mask(3))
    folder = move_places(intensity, fit, 3, seed=3).write(tmp_path / "out")
    publish(folder, to=tmp_path / "public", reason="a test")
    assert tables_in(open_ledger())[0].placed == (False,)
    found = assess_places(move_places(intensity, fit, 3, seed=4), finding=0.999)
    assert found.unknown == 1
    assert found.verdict == NOT_JUDGED
    assert "not assessed" in found.why
