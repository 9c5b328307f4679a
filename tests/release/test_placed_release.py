"""Releases with synthetic places: what their files hold, and how they go out."""

from __future__ import annotations

import json
import stat
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from placed_tables import home_fit, home_intensity, home_problem, homes, unit_mask

from dsstan.analysis.combining import combine, combine_full
from dsstan.copies.places.draw import move_places, synthesise_population
from dsstan.core.errors import DisclosureError, InputError
from dsstan.models.intensity.fit import fit_intensity
from dsstan.models.weights import own_weights
from dsstan.release.metadata import check_metadata
from dsstan.release.placed.verdict import placed_verdict, unmet
from dsstan.release.publication.publish import publish
from dsstan.release.reading import read_release, read_table
from dsstan.table.prepare import prepare
from mc import z_limit

WIDE = 0.99
"""Most that intervals of synthetic populations cover of a mean: they are wide, not endless."""

SAME = 1e-12
"""One formula in two ways."""


@dataclass
class Judged:
    """In place of an assessment of places."""

    verdict: str
    why: str = "one place is found with a chance of 60%"

    def summary(self):
        return {"floor": "presence 3"}


@pytest.fixture(scope="module")
def problem():
    return home_problem(homes())


@pytest.fixture(scope="module")
def release(problem):
    return move_places(home_intensity(problem, unit_mask()), home_fit(problem), 5)


def content(folder, name):
    return json.loads((folder / name).read_text())


def test_what_is_read_back_is_what_was_drawn(release, tmp_path):
    folder = release.write(tmp_path / "out", assessment=Judged("met"))
    back = read_release(folder)
    for read, table in zip(back, release.tables, strict=True):
        pd.testing.assert_frame_equal(read, table)
    assert back.places == "moved"
    assert back.metadata["combining_rule"].startswith("Reiter (2003)")
    for inner in ("public", "confidential"):
        assert stat.S_IMODE((folder / inner).stat().st_mode) == 0o700
        assert all(stat.S_IMODE(f.stat().st_mode) == 0o600 for f in (folder / inner).iterdir())


def test_only_what_was_drawn_is_public(release, tmp_path):
    folder = release.write(tmp_path / "out", assessment=Judged("met"))
    names = sorted(path.name for path in (folder / "public").iterdir())
    assert names == [
        *(["README.md"]),
        *(f"copy_{i:03d}.csv" for i in range(1, 6)),
        "metadata.json",
    ]
    described = content(folder / "public", "metadata.json")
    assert check_metadata(described) is None
    assert described["columns"].keys() == {"x", "y", "size", "price"}
    assert described["places"] == {
        "kind": "moved",
        "number": "kept",
        "records": [150] * 5,
        "cells": 36,
        "at": "uniform in a cell",
    }
    public = "".join(p.read_text() for p in (folder / "public").glob("*.[mj]*"))
    assert str(release.seed) not in public
    assert "lonely" not in public


def test_a_judged_release_goes_out_and_is_whole_there(problem, tmp_path):
    release = move_places(home_intensity(problem, unit_mask()), home_fit(problem), 5)
    folder = release.write(tmp_path / "out", assessment=Judged("met"))
    note = publish(folder, to=tmp_path / "published")
    assert note.disclosure_verdict == "met"
    assert note.floor == "presence 3"
    assert len(read_release(tmp_path / "published").copies) == 5


def test_a_release_that_nobody_judged_needs_a_reason(release, tmp_path):
    folder = release.write(tmp_path / "out")
    with pytest.raises(DisclosureError, match="was not judged"):
        publish(folder, to=tmp_path / "published")
    assert not (tmp_path / "published").exists()
    publish(folder, to=tmp_path / "published", reason="a table of an exercise")


def test_a_mask_drawn_from_the_table_needs_a_reason(problem, tmp_path):
    mask = replace(unit_mask(), source="table")
    release = move_places(home_intensity(problem, mask), home_fit(problem), 5)
    folder = release.write(tmp_path / "out", assessment=Judged("met"))
    with pytest.raises(DisclosureError, match="mask-from-table"):
        publish(folder, to=tmp_path / "published")


def test_lonely_records_that_inform_the_values_need_a_reason(problem, tmp_path):
    intensity = home_intensity(problem, unit_mask(), held_back=1)
    weights = own_weights(problem, intensity.lonely)
    flagged = home_fit(problem, weights=weights, start=home_fit(problem))
    for name, fit, verdict in (("told", home_fit(problem), "warned"), ("not", flagged, "ok")):
        folder = move_places(intensity, fit, 5).write(tmp_path / name, assessment=Judged("met"))
        summary = content(folder / "confidential", "summary.json")
        assert summary["fit_verdict"] == verdict
        assert ("lonely-values" in summary["verdict"]["warnings"]) == (verdict == "warned")


def test_a_surface_that_is_flat_or_as_rough_as_its_cells_needs_no_reason():
    """Places that ignore one another: sigma reaches its low end, the decay its high one."""
    at = np.random.default_rng(2).random((120, 2))
    table = pd.DataFrame({"x": at[:, 0], "y": at[:, 1], "price": 1.0 + at[:, 0]})
    problem = prepare(table, "price ~ 1", coords=("x", "y"), distance="planar")
    where = fit_intensity(problem, unit_mask(4), seed=1, progress=False)
    (surface,) = where.fits.values()
    warned = {check.condition for check in surface.verdict.warnings}
    assert warned == {"phi-at-bound", "no-spatial-effect"}
    release = move_places(where, (), 2, problem=problem, progress=False)
    assert unmet(release) == []
    assert placed_verdict(release) == "ok"


def test_a_missed_floor_is_not_written_without_a_reason(release, tmp_path):
    with pytest.raises(DisclosureError, match="found with a chance"):
        release.write(tmp_path / "out", assessment=Judged("missed"))
    with pytest.raises(InputError, match="belong together"):
        release.write(tmp_path / "out", assessment=Judged("missed"), accept_below_floor=True)
    assert not (tmp_path / "out").exists()
    folder = release.write(
        tmp_path / "out", assessment=Judged("missed"), accept_below_floor=True, reason="a test"
    )
    assert content(folder / "confidential", "summary.json")["accepted_below_floor"] == "a test"
    with pytest.raises(DisclosureError, match="misses its floor"):
        publish(folder, to=tmp_path / "published")


def test_a_second_release_of_the_table_is_not_let_out_unseen(problem, tmp_path):
    intensity, fit = home_intensity(problem, unit_mask()), home_fit(problem)
    folders = [
        move_places(intensity, fit, 5).write(tmp_path / f"out{i}", assessment=Judged("met"))
        for i in range(2)
    ]
    publish(folders[0], to=tmp_path / "first")
    with pytest.raises(DisclosureError, match="nobody knows what all tell"):
        publish(folders[1], to=tmp_path / "second")


def test_no_cell_of_the_file_is_written_again_beside_another_row(tmp_path):
    table = homes()
    table["size"] = [f"{size}.0" if i % 2 else f"{size}.00" for i, size in enumerate(table["size"])]
    table.to_csv(tmp_path / "in.csv", index=False)
    problem = home_problem(read_table(tmp_path / "in.csv"))
    release = move_places(home_intensity(problem, unit_mask()), home_fit(problem), 2)
    folder = release.write(tmp_path / "out")
    for i, copy in enumerate(release.tables, 1):
        text = pd.read_csv(folder / "public" / f"copy_{i:03d}.csv", dtype=str)
        np.testing.assert_array_equal(text["size"].astype(float), copy["size"])
        assert set(text["size"].str.len()) <= {1, 3}  # 1 or 1.0, never 1.00


def test_a_population_says_so_and_has_its_own_number_of_rows_in_each_copy(problem, tmp_path):
    intensity = home_intensity(problem, unit_mask())
    table = problem.table.drop(columns=["size", "note"])
    prices = prepare(table, "log(price) ~ x", coords=("x", "y"), distance="planar")
    release = synthesise_population(intensity, (home_fit(prices),), 4, groups=("kind",))
    folder = release.write(tmp_path / "out", format="parquet")
    back = read_release(folder)
    assert [len(copy) for copy in back] == [len(table) for table in release.tables]
    assert back.metadata["synthesis"] == "full"
    assert "Raghunathan" in back.metadata["combining_rule"]
    readme = " ".join((folder / "public" / "README.md").read_text().split())
    assert "No row is a record" in readme
    pd.testing.assert_frame_equal(back.copies[2], release.tables[2])


def test_places_alone_can_be_released(problem, tmp_path):
    release = synthesise_population(
        home_intensity(problem, unit_mask()), copies=3, problem=problem, groups=("kind",)
    )
    back = read_release(release.write(tmp_path / "out"))
    assert back.metadata["model"] is None
    assert list(back.copies[0].columns) == ["x", "y", "kind"]


def test_a_chain_names_what_each_column_was_drawn_given(tmp_path):
    table = homes()
    sizes = prepare(table, "size ~ x", coords=("x", "y"), distance="planar")
    prices = home_problem(table)
    intensity, fits = home_intensity(prices, unit_mask()), (home_fit(sizes), home_fit(prices, 50))
    with pytest.raises(InputError, match="step 2: 60 copies need as many posterior draws"):
        synthesise_population(intensity, fits, 60, groups=("kind",), accept_few_draws=True)
    release = synthesise_population(intensity, fits, 3, groups=("kind",))
    steps = read_release(release.write(tmp_path / "out")).metadata["chain"]
    assert [step["given"] for step in steps] == [["x"], ["x", "size"]]


def test_the_rule_of_full_synthesis_is_that_of_the_paper_and_never_below_a_known_population():
    rng = np.random.default_rng(1)
    q, u = rng.standard_normal((8, 3)) * [3.0, 1.0, 0.1], np.full((8, 3), 0.5)
    found, b = combine_full(q, u), q.var(axis=0, ddof=1)
    own = (1.0 + 1.0 / 8) * b - 0.5
    least = combine(q, u).variance
    np.testing.assert_allclose(found.variance, np.maximum(own, least), atol=SAME)
    assert (own > least)[0]
    assert (own < least)[2]
    first = 7 * (1.0 - 0.5 / ((1.0 + 1.0 / 8) * b[0])) ** 2
    assert found.df[0] == pytest.approx(max(first, 3.5), rel=SAME)
    for rule in (combine, combine_full):  # L numbers are one term
        alone = rule(q[:, 0], u[:, 0])
        assert alone.variance.shape == (1,)
        assert alone.high[0] == rule(q, u).high[0]


def test_intervals_of_populations_cover_a_mean_at_least_as_often_as_they_say():
    rng, S, n, L = np.random.default_rng(2), 20_000, 100, 20
    table = rng.standard_normal(S) / np.sqrt(n)  # the mean of each of S tables; the truth is 0
    posterior = table + rng.standard_normal((L, S)) / np.sqrt(n)
    q = posterior + rng.standard_normal((L, S)) / np.sqrt(n)
    u = rng.chisquare(n - 1, (L, S)) / (n - 1) / n
    found = combine_full(q, u)
    covered = float(np.mean((found.low < 0) & (found.high > 0)))
    error = np.sqrt(0.05 * 0.95 / S)
    assert 0.95 - z_limit(1) * error < covered < WIDE
