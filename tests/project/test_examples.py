"""What the examples must show, and that their scripts run."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest

import dsstan as ds
from conftest import ROOT
from dsstan.cli.examples import EXAMPLES, outlier, run_example
from dsstan.models.weights import neighbour_distances

SAN_FRANCISCO = "log(price) ~ scale(log(squarefeet))"
PAPER_OLS = 1e-3
"""The paper's printed digits."""
ROUNDING = 1e-10
"""Two ways of least squares on the same numbers, of which the intercept is near 10."""


@pytest.fixture(scope="module")
def homes(san_francisco):
    return ds.prepare(
        san_francisco, SAN_FRANCISCO, coords=("longitude", "latitude"), distance="degrees"
    )


@pytest.fixture(scope="module")
def homes_release(homes):
    free = ds.fit(homes, seed=1, engine="embedded", progress=False)
    flags = ds.flag_isolated(free, distance=0.01)
    kept = ds.fit(homes, weights=flags, start=free, seed=2, engine="embedded", progress=False)
    return ds.synthesise(kept, copies=500, seed=3)


@pytest.fixture(scope="module")
def people_release():
    problem = ds.prepare(ds.load_simulated(), "log(income) ~ 1", coords=("s1", "s2"))
    free = ds.fit(problem, seed=1, engine="embedded", progress=False)
    flags = ds.flag_isolated(free, distance=0.13)
    kept = ds.fit(problem, weights=flags, start=free, seed=2, engine="embedded", progress=False)
    return ds.synthesise(kept, copies=500, seed=3)


def test_san_francisco_has_the_paper_s_records_and_least_squares(homes, homes_release):
    assert homes.n_records == 214
    assert homes.n_sites == 154
    assert homes.n_coincident == 90
    table = ds.utility(homes_release)
    intercept, slope = (table.get("original", term) for term in homes.terms)
    assert intercept["estimate"] == pytest.approx(13.232, abs=PAPER_OLS)
    assert (intercept["low"], intercept["high"]) == pytest.approx((13.197, 13.268), abs=PAPER_OLS)
    assert slope["estimate"] == pytest.approx(0.2706, abs=PAPER_OLS)
    assert (slope["low"], slope["high"]) == pytest.approx((0.235, 0.306), abs=PAPER_OLS)


def test_a_hundredth_of_a_degree_flags_exactly_the_paper_s_seven(homes, homes_release):
    weights = homes_release.fit.weights
    assert weights.n_flagged == 7
    distances = np.sort(neighbour_distances(homes))[::-1]
    paper = [0.0207, 0.0207, 0.0162, 0.0148, 0.0148, 0.0141, 0.0130, 0.0074]
    np.testing.assert_allclose(distances[:8], paper, atol=5e-5)
    np.testing.assert_array_equal(np.sort(weights.nearest[weights.flagged])[::-1], distances[:7])


def test_restricted_copies_of_san_francisco_keep_the_regression(homes_release):
    table = ds.utility(homes_release)
    for term in homes_release.problem.terms:
        real = table.get("original", term)["estimate"]
        assert table.get("restricted", term)["estimate"] == pytest.approx(real, abs=0.003)


def test_protection_lowers_the_risk_of_the_flagged_homes_as_in_the_paper(homes_release):
    """The paper: 93% at the home, 50% flagged, 11% others."""
    risks = ds.disclosure(homes_release)
    falls = risks.reduction.set_index("group")["percent"]
    assert 40 < falls["flagged"] < 60
    assert 3 < falls["unflagged"] < 20
    coords = homes_release.problem.coords
    near = np.hypot(coords[:, 0] + 122.48, coords[:, 1] - 37.76)
    home = int(np.argmin(np.where(homes_release.fit.flagged, near, np.inf)))
    assert homes_release.problem.y[home] == pytest.approx(13.30, abs=0.005)
    row = risks.records.iloc[home]
    assert 1 - row["within_relative_restricted"] / row["within_relative_unrestricted"] > 0.8


def test_the_simulated_example_flags_three_and_shows_the_paper_s_pattern(people_release):
    kept, free = people_release.fit, people_release.fit.start
    assert kept.weights.n_flagged == 3
    assert kept.flagged[-1]
    mean = {f.kind: {k: d.mean() for k, d in f.scalars.items()} for f in (free, kept)}
    before, after = mean["unrestricted"], mean["restricted"]
    assert before["beta_0"] - after["beta_0"] > 0.5
    assert 1.6 < after["tau_sq"] / before["tau_sq"] < 2.8
    low, high = np.quantile(free.draws["sigma_sq"], [0.025, 0.975])
    assert low < after["sigma_sq"] < high


def test_copies_at_the_simulated_outlier_centre_on_the_truth_before_and_on_x_beta_after(
    people_release,
):
    record = outlier(people_release)
    assert record == 499
    kept = people_release.fit
    before = people_release.unprotected.modelled()[:, record]
    after = people_release.modelled()[:, record]
    assert before.mean() == pytest.approx(7.08, abs=0.15)
    width = np.sqrt((kept.draws["sigma_sq"] + kept.draws["tau_sq"]).mean())
    error = 5 * width / np.sqrt(500)
    assert after.mean() == pytest.approx(kept.draws["beta"].mean(), abs=error)
    assert after.std() == pytest.approx(width, rel=5 * np.sqrt(0.5 / 500))


def test_incomes_near_the_truth_fall_from_all_to_a_third(people_release):
    """The paper: within 10,000 dollars, 100% then 30%."""
    risks = ds.disclosure(people_release, absolute=10_000)
    row = risks.records.iloc[499]
    assert row["within_absolute_unrestricted"] > 0.98
    assert 0.15 < row["within_absolute_restricted"] < 0.5


@pytest.mark.nightly("the command of another example runs by day")
def test_an_example_becomes_a_release_with_pictures(tmp_path):
    result = run_example("baltimore", tmp_path / "out", copies=5, engine="embedded", progress=False)
    assert result.release.problem.n_records == 211
    assert {p.name for p in result.pictures} == {
        "surfaces.png",
        "copies_of_the_weakest.png",
        "flags.png",
        "risk_by_copies.png",
        "utility.png",
    }
    for picture in result.pictures:
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert picture.stat().st_mode & 0o077 == 0
    assert len(list((result.folder / "public").glob("copy_*.csv"))) == 5


def test_an_unknown_example_is_refused(tmp_path):
    with pytest.raises(ds.errors.InputError, match="choose from simulated"):
        run_example("paris", tmp_path / "out")
    assert set(EXAMPLES) == {"simulated", "san-francisco", "baltimore"}


executed = pytest.mark.nightly("the examples are executed as the pages are built")
SCRIPTS = sorted(p.name for p in (ROOT / "examples").glob("[0-9]*.py"))
BY_DAY = "01_the_risk.py"


@pytest.mark.parametrize(
    "script", [pytest.param(s, marks=() if s == BY_DAY else executed) for s in SCRIPTS]
)
def test_the_example_runs_and_warns_of_nothing(script, printed):
    assert "restricted" in printed(script)


def alone(tmp_path, **environment):
    """Example 7 as a script of its own, in quick mode."""
    return subprocess.run(
        [sys.executable, str(ROOT / "examples" / "07_stan_alone.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"DSSTAN_QUICK": "1", "MPLBACKEND": "agg", **environment},
        check=False,
    )


@executed
def test_the_simulated_study_prints_every_cell_of_the_paper_s_two_tables(printed):
    text = printed("03_simulated_study.py")
    for cell in ("11.71 (11.49, 12.07)", "0.12 (0.10, 0.15)", "0.40 (0.22, 0.57)"):
        assert cell in text
    rows = [line for line in text.splitlines() if re.search(r"\S \(.*\) +\S+ \(", line)]
    assert len(rows) == 9 + 12
    assert "M = 0.13 flags 3 records, the outlier and 2 more" in text
    assert "of its restricted copies" in text


@executed
def test_the_san_francisco_example_names_seven_homes_by_their_coordinates(printed):
    text = printed("04_san_francisco.py")
    assert "any M above 0.0074 and up to 0.0130 degrees flags seven homes" in text
    assert "the flagged home nearest to it is at (-122.4810, 37.7619)" in text
    table = text.split("homes with no neighbour within", 1)[1].split("correlation 0.20", 1)[0]
    assert len(re.findall(r"^-122\.\d+ +37\.\d+", table, re.MULTILINE)) == 7
    assert not re.search(r"street|avenue", text, re.IGNORECASE)


@executed
def test_the_analyst_of_the_baltimore_example_gets_the_steward_s_estimates(printed):
    text = printed("06_baltimore.py")
    apart = re.search(r"steward's and analyst's estimates differ by (\S+)", text)
    assert float(apart[1]) < ROUNDING
    assert "public/ drwx------" in text  # until it is published
    assert "confidential/ drwx------" in text


@pytest.mark.nightly("statistics on the second engine")
def test_cmdstan_alone_gives_the_posterior_of_the_package(tmp_path, san_francisco, cmdstan_home):
    ran = alone(tmp_path, **os.environ)
    assert ran.returncode == 0, ran.stderr
    assert "Warning" not in ran.stderr
    text = ran.stdout
    assert "CmdStan is here" in text
    assert "cmdstan ran restricted.stan" in text
    assert "wrote restricted_1.csv, restricted_2.csv, restricted_3.csv, restricted_4.csv" in text
    assert "CmdStan alone: 4 of 4 means within" in text
    assert "the private folder is gone: True" in text
    assert [path.name for path in tmp_path.iterdir()] == ["pictures"]


def test_without_cmdstan_the_same_example_says_what_ran_instead(san_francisco, tmp_path):
    # A folder without CmdStan, and no other place where it would be looked for.
    kept = {k: v for k, v in os.environ.items() if k != "CMDSTAN"}
    ran = alone(tmp_path, **{**kept, "HOME": str(tmp_path)})
    assert ran.returncode == 0, ran.stderr
    assert "no CmdStan here, the embedded engine: CmdStan is not installed" in ran.stdout
    assert "the embedded engine alone: 4 of 4 means within" in ran.stdout
