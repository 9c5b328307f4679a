"""Settings compared under an approximated covariance, and measures that refuse one."""

from __future__ import annotations

import dataclasses
import sys

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.spatial import distance
from test_command_line import MODEL, inside  # noqa: F401

import dsstan as ds
from conftest import small_table
from dsstan.comparison.frontier import compare
from dsstan.comparison.frontier_result import UTILITIES
from dsstan.comparison.scores import measure
from dsstan.core.errors import InputError
from dsstan.covariance import latent
from dsstan.covariance.approximations import PredictiveProcess, Vecchia
from dsstan.covariance.vecchia import exposure
from dsstan.risk.intruder import attacker
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.weaker import weak_attack
from dsstan.risk.keys.attribute import attribute

FAST = {"engine": "embedded", "progress": False, "chains": 2, "warmup": 200, "samples": 300}
FEW = 36
"""Records of a table whose every record has all others around it and as neighbours."""

DRAWS, FALSE_ALARM = 40, 1e-5
SDS = ("sd_at_risk_known", "sd_at_risk_fixed", "sd_at_risk_median", "sd_all")


@pytest.fixture(scope="module")
def exact():
    """An unrestricted fit of 36 records under the exact covariance."""
    table = small_table(FEW, seed=9, shared=4)
    problem = ds.prepare(table, "log(value) ~ x", coords=("east", "north"))
    return ds.fit(problem, seed=1, **FAST)


@pytest.fixture(scope="module")
def whole(exact):
    """The same draws under Vecchia's approximation, given all neighbours."""
    return dataclasses.replace(exact, covariance=Vecchia(FEW - 1))


@pytest.fixture
def all_draws(monkeypatch):
    """Local and exact terms are averaged over the same draws."""
    monkeypatch.setattr(exposure, "MOST_DRAWS", DRAWS)
    monkeypatch.setattr(attacker, "DRAWS", DRAWS)


@pytest.mark.parametrize("protection", ["paper", "cut"])
def test_a_setting_given_all_neighbours_is_measured_as_exactly(exact, whole, all_draws, protection):
    weights = ds.flag_isolated(exact, distance=0.15)
    kept = ds.fit(
        exact.problem, weights=weights, protection=protection, start=exact, seed=2, **FAST
    )
    near = dataclasses.replace(kept, covariance=whole.covariance)
    wanted = measure(kept, exact, [3], 0.1, DRAWS, 3)
    found = measure(near, whole, [3], 0.1, DRAWS, 3)
    # Exact leave-one-out terms are interpolated over the draws to 1e-5.
    np.testing.assert_allclose(found.known, wanted.known, rtol=1e-4)
    np.testing.assert_allclose(found.fixed, wanted.fixed, rtol=1e-4)
    assert found.left_out == pytest.approx(0.0, abs=1e-8)
    reach = stats.t.isf(FALSE_ALARM / 12, 18)  # 6 comparisons, both sides; 10 sets in each mean
    for name in UTILITIES:
        errors = [np.array(getattr(one, f"{name}_error")) for one in (found, wanted)]
        gap = np.abs(np.subtract(getattr(found, name), getattr(wanted, name)))
        assert np.all(gap < reach * np.hypot(*errors))


def test_a_comparison_given_all_neighbours_is_the_exact_one(exact, whole, all_draws):
    grid = {"distances": (0.15,), "copies": (4,), "seed": 5, "draws": DRAWS, **FAST}
    wanted = compare(exact.problem, start=exact, **grid)
    found = compare(whole.problem, start=whole, **grid)  # under the covariance of its start
    assert found.failed == wanted.failed == {}
    np.testing.assert_array_equal(found.at_risk, wanted.at_risk)
    assert list(found.table.columns) == list(wanted.table.columns)
    labels = ["setting", "threshold", "flagged", "gamma", "effect", "copies"]
    pd.testing.assert_frame_equal(found.table[labels], wanted.table[labels])
    none, kept = (
        [table.iloc[i][list(SDS)].to_numpy(dtype=float) for table in (found.table, wanted.table)]
        for i in (0, 1)
    )
    np.testing.assert_allclose(*none, rtol=1e-4)
    # The restricted fits are sampled anew, so theirs agree to the error of their draws.
    weights = ds.flag_isolated(exact, distance=0.15)
    again = ds.fit(exact.problem, weights=weights, start=exact, seed=2, **FAST)
    error = attack(again, copies=4, draws=DRAWS).relative_error().max()
    np.testing.assert_allclose(
        *kept, rtol=stats.norm.isf(FALSE_ALARM / 2 / len(SDS)) * np.sqrt(2.0) * error
    )


def test_settings_take_the_covariance_of_their_start_or_none(exact, whole):
    for start, asked in ((exact, "vecchia"), (whole, "exact"), (whole, Vecchia(5))):
        with pytest.raises(InputError, match="start was fitted with another covariance"):
            compare(exact.problem, start=start, covariance=asked)
    with pytest.raises(InputError, match="covariance must be one of"):
        compare(exact.problem, covariance="guess")


def test_finished_settings_of_another_covariance_are_not_taken(exact, whole, tmp_path):
    grid = {"distances": (0.15,), "copies": (3,), "seed": 5, "draws": 2, "folder": tmp_path}
    compare(exact.problem, start=exact, **grid, **FAST)
    assert compare(whole.problem, start=whole, **grid, **FAST).computed == 2
    again = compare(whole.problem, start=whole, **grid, **FAST)
    assert again.computed == 0
    assert again.table["left_out"].notna().all()


def test_under_the_predictive_process_the_risk_is_the_shares(exact):
    found = compare(
        exact.problem,
        covariance=PredictiveProcess(10),
        distances=(0.15,),
        copies=(3,),
        seed=5,
        **{**FAST, "warmup": 50, "samples": 50},
    )
    assert found.failed == {}
    assert found.table[list(SDS)].isna().all(axis=None)
    assert not found.table[["share_at_risk", *UTILITIES]].isna().any(axis=None)
    assert found.usual_risk == "share_at_risk"
    pd.testing.assert_frame_equal(found.best(), found.best("share_at_risk"))
    assert "share_at_risk" in str(found)
    assert found.plot().mapping["y"] == "share_at_risk"
    with pytest.raises(InputError, match=r"no sd of an intruder .* risk=\"share_at_risk\""):
        found.best("sd_all")


@pytest.fixture
def no_all_pairs(monkeypatch):
    """Take the distances of all pairs of 2500 places away; fewer may be asked for.

    The likelihood has them up to 5000 sites, so the 2500 here stand for more.
    """
    monkeypatch.setattr("dsstan.covariance.vecchia.refinement.EXACT_ROWS", 0)

    def of_some(a, b, *more, **options):
        if len(a) * len(b) >= 2500**2:
            raise AssertionError("a matrix of all pairs")
        return distance_of(a, b, *more, **options)

    distance_of = distance.cdist
    modules = [m for name, m in sys.modules.items() if name.split(".")[0] == "dsstan"]
    for module in (distance, *modules):
        if hasattr(module, "cdist"):
            monkeypatch.setattr(module, "cdist", of_some)


def test_a_comparison_of_many_records_makes_no_matrix_of_all_pairs(no_all_pairs, monkeypatch):
    monkeypatch.setattr(exposure, "MOST_DRAWS", 2)
    rng = np.random.default_rng(0)
    places, noise = rng.uniform(size=(2500, 2)), rng.normal(size=2500)
    table = pd.DataFrame({"east": places[:, 0], "north": places[:, 1]})
    table["value"] = np.sin(9 * places[:, 0]) + np.cos(7 * places[:, 1]) + 0.4 * noise
    problem = ds.prepare(table, "value ~ 1", coords=("east", "north"))
    few = {"copies": (3,), "seed": 1, "draws": 2, **FAST, "warmup": 40, "samples": 20}
    found = compare(problem, distances=(0.025,), **few)
    assert found.failed == {}
    assert len(found.table) == 2
    assert found.at_risk.any()
    assert (found.table["surface"] > 0.9).all()
    assert (found.table["left_out"] < 0.05).all()
    with pytest.raises(AssertionError, match="a matrix of all pairs"):
        compare(problem, covariance="exact", **few)


@pytest.mark.parametrize("measure_of", [attribute, weak_attack])
def test_measures_of_all_pairs_say_where_they_stop(exact, whole, measure_of, monkeypatch):
    name = measure_of.__name__

    def copies(start):
        return ds.synthesise(
            start, 2, seed=2, accept_failed=True, accept_few_draws=True, progress=False
        )

    limit = rf"{name}\(\) takes the exact covariance, up to 5,000 records"
    release = copies(whole)
    with pytest.raises(InputError, match=limit + ", and the fit has another .*use attack"):
        measure_of(release)
    # Of another intruder's fit too, and no advice to use what refuses the predictive process.
    other = dataclasses.replace(exact, covariance=PredictiveProcess(10))
    with pytest.raises(InputError, match=limit + r".*\): prepare\(\) fewer"):
        measure_of(copies(exact), against=other)
    monkeypatch.setattr(latent, "ALL_PAIRS_LIMIT", FEW - 1)
    with pytest.raises(InputError, match=r"up to 35 records; for these 36 .* GiB of memory: use"):
        measure_of(release)


def test_the_command_takes_the_covariance(inside, tmp_path):  # noqa: F811
    file = tmp_path / "homes.csv"
    small_table(FEW, seed=9, shared=4).to_csv(file, index=False)
    quick = ("--chains", "2", "--warmup", "60", "--samples", "60", "--engine", "embedded")
    grid = ("compare", file, *MODEL, *quick, "--copies", "3", "--protection", "paper")
    near = ("--covariance", "vecchia", "--neighbours", "8")
    dry = inside(*grid, *near, "--dry-run", "--out", tmp_path / "dry")
    assert dry.returncode == 0, dry.stderr
    assert "covariance vecchia" in " ".join(dry.stdout.split())
    done = inside(*grid, *near, "--seed", "5", "--floor", "0.01", "--out", tmp_path / "grid")
    assert done.returncode == 0, done.stderr
    problem = ds.prepare(pd.read_csv(file), "log(value) ~ x", coords=("east", "north"))
    same = {"distances": (0.15,), "copies": (3,), **FAST, "warmup": 60, "samples": 60}
    kept = compare(problem, covariance=Vecchia(8), folder=tmp_path / "grid", **same)
    assert kept.computed == 0
    knots = inside(*grid, "--covariance", "predictive_process", "--floor", "1", "--out", "x")
    assert (knots.returncode, "leave the floor out" in knots.stderr) == (2, True)
    alone = inside(*grid, "--neighbours", "8", "--out", tmp_path / "x")
    assert (alone.returncode, "give both, or neither" in alone.stderr) == (2, True)
