"""The screen of a release with synthetic places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from placed_tables import home_fit, home_intensity, home_problem, homes, unit_mask

from dsstan.cli.placed_screen import placed_screen
from dsstan.copies.places.draw import move_places
from dsstan.core.display import chance_per_cent
from dsstan.risk.places.assessment import assess_places

ELSEWHERE = np.random.default_rng(5).random((400, 2))
"""Addresses to more decimals than the places of the table, so that no record is at one."""


@pytest.fixture(scope="module")
def problem():
    return home_problem(homes())


def shown(problem, **of_mask):
    """The screen in one line, and what was found."""
    mask = replace(unit_mask(), **of_mask)
    release = move_places(home_intensity(problem, mask), home_fit(problem), 3, seed=1)
    found = assess_places(release, earlier=())
    return " ".join(line.text for line in placed_screen(release, found, None)), found


def test_the_chance_of_the_right_cell_is_named_once_where_no_record_is_at_an_address(problem):
    text, found = shown(problem, addresses=np.vstack([ELSEWHERE, unit_mask().centres]))
    assert found.unlisted == problem.n_records
    before, after = (
        chance_per_cent(chances.max()) for chances in (found.found.cell_before, found.found.cell)
    )
    assert "finds their cell, 0.167 coordinate units wide, with a chance of at most" in text
    assert text.count(f"{after} ({before}") == 1
    card = str(found)
    assert card.count("chance of the right cell") == 1
    assert "address" not in card


def test_address_and_cell_have_a_chance_each_where_records_are_at_addresses(problem):
    listed = np.vstack([ELSEWHERE, unit_mask().centres, problem.sites])
    text, found = shown(problem, addresses=listed)
    assert found.unlisted == 0
    assert "finds their address with a chance of at most" in text
    assert "; their cell, 0.167 coordinate units wide, " in text
    assert str(found).count("Finding, chance of the right") == 2
