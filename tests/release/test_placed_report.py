"""The steward's page of a release with synthetic places."""

from __future__ import annotations

import stat

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from placed_tables import home_fit, home_intensity, home_problem, homes, unit_mask

import dsstan as ds
from dsstan.analysis.places.marked import marked, marked_release
from dsstan.analysis.places.utility import place_utility
from dsstan.copies.places.draw import move_places
from dsstan.models.intensity.cell_law import IndependentCells
from dsstan.models.intensity.result import Intensity
from dsstan.models.weights import own_weights
from dsstan.risk.places.assessment import assess_places
from dsstan.table.mask.mask import Mask


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The confidential folder of places alone, moved."""
    rng = np.random.default_rng(1)
    at = 5 * rng.random((60, 2))
    table = pd.DataFrame({"u": at[:, 0], "v": at[:, 1], "y": rng.normal(size=60)})
    problem = ds.prepare(table, "y ~ 1", coords=("u", "v"), distance="planar")
    centres = np.stack(np.meshgrid(np.arange(5), np.arange(5)), axis=-1).reshape(-1, 2) + 0.5
    mask = Mask(centres, 1.0, np.ones(25))
    cells, groups = mask.cell_of(problem.sites), np.zeros(60, dtype=np.int64)
    intensity = Intensity(mask, ("all",), groups, cells, IndependentCells(np.full((1, 25), 0.5)))
    release = move_places(intensity, (), 2, problem=problem, seed=1, progress=False)
    kept = place_utility(marked(problem), marked_release(release), mask, steps=6)
    folder = release.write(
        tmp_path_factory.mktemp("out") / "release", assessment=assess_places(release), utility=kept
    )
    return folder / "confidential", kept


def test_the_page_has_both_pictures_with_a_text_and_the_tables_and_asks_no_network(written):
    folder, kept = written
    page = BeautifulSoup((folder / "report.html").read_text(encoding="utf-8"), "html.parser")
    assert [image["alt"].split()[0] for image in page.select("img")] == ["Map", "K"]
    assert all(image["src"].startswith("data:image/png;base64,") for image in page.select("img"))
    assert "2 copies" in page.select("img")[0]["alt"]
    text = page.get_text()
    assert repr(kept) in text
    assert "Finding, chance of the right cell" in text
    assert text.count("no limit was asked for") + text.count("No limit was asked for") == 1
    assert "Presence, Bayes factor" not in text  # moved places hide nobody's presence
    assert not page.select("script, [href^=http], [src^=http]")
    banners = [banner.select_one(".head").get_text() for banner in page.select(".banner")]
    assert [banner[1:] for banner in banners] == ["FIT: warnings", "DISCLOSURE: NOT JUDGED"]
    assert "guessable-seed" in page.select_one(".finding h3").get_text()  # seed=1 above
    assert "Publish only with a reason" in page.select_one(".sign-off").get_text()
    chances = page.select("#intruders ~ .scroll table")[0].select("td:not(:nth-of-type(1))")
    assert chances
    assert all(cell.get_text().endswith("%") for cell in chances)


def test_a_floor_shows_how_near_values_are_placed_and_of_how_many_records(tmp_path):
    problem, mask = home_problem(homes(60)), unit_mask(4)
    fit = home_fit(problem)
    flagged = home_fit(problem, weights=own_weights(problem, np.arange(60) < 3), start=fit)
    release = move_places(home_intensity(problem, mask), flagged, 2, progress=False)
    kept = place_utility(marked(problem), marked_release(release), mask, steps=6)
    found = assess_places(release, floor="1%", earlier=())
    why = {"accept_below_floor": True, "reason": "a test"}
    folder = release.write(tmp_path / "release", assessment=found, utility=kept, **why)
    text = (folder / "confidential" / "report.html").read_text(encoding="utf-8")
    page = BeautifulSoup(text, "html.parser")
    rows = page.select("#values ~ .scroll tbody")
    assert [one.select_one(".group-heading").get_text() for one in rows] == [
        "flagged records",
        "unflagged records",
    ]
    shares = [row.select("td.number") for one in rows for row in one.select("tr")[2:3]]
    assert all(cell.get_text().endswith("% of 3") for cell in shares[0])
    assert all(cell.get_text().endswith("%") for cell in shares[1])
    assert found.values.most_learnt_in_words() in page.get_text()


def test_the_curves_are_beside_it_and_only_their_owner_reads_both(written):
    folder, kept = written
    curves = pd.read_csv(folder / "utility.csv")
    np.testing.assert_allclose(curves["original"], kept.curves["original"])
    for name in ("report.html", "utility.csv"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    assert not (folder.parent / "public" / "report.html").exists()
