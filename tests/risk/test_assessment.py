"""The whole disclosure report: every record, before and after, in every odd case a number."""

from __future__ import annotations

import dataclasses
import json
from functools import lru_cache

import numpy as np
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import InputError
from dsstan.models.weights import own_weights
from dsstan.release.pictures.risk_plots import plot_release_size
from dsstan.risk.assessment import assess
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.former import Former
from dsstan.risk.placing import chance_near, half_width

FAST = {"engine": "embedded", "progress": False, "chains": 2, "warmup": 300, "samples": 300}


@pytest.fixture(scope="module")
def report(kept):
    return assess(ds.synthesise(kept, 20, seed=1, progress=False), floor=0.1, absolute=5.0)


def test_it_holds_the_attack_before_and_after_and_the_shares(report, kept):
    release = ds.synthesise(kept, 20, seed=1, progress=False)
    after, before = attack(release), attack(release.unprotected)
    np.testing.assert_array_equal(report.after.sd(), after.sd())
    np.testing.assert_array_equal(report.before.sd(), before.sd())
    assert report.shares.absolute == 5.0
    assert report.after.draws == min(400, kept.n_draws)
    np.testing.assert_array_equal(
        report.records["sd_known_20_restricted"], after.sd(variances="known")
    )
    np.testing.assert_array_equal(report.records["sd_fixed_500_unrestricted"], before.sd(500))
    np.testing.assert_array_equal(report.records["sd_leave_one_out"], after.leave_one_out)


def test_it_leads_with_the_exact_posterior_of_the_weakest_records(report, kept):
    found = report.exact.records
    sd = report.after.sd(variances="known")
    assert set(found["position"]) >= set(np.argsort(sd)[:10])
    np.testing.assert_array_equal(found["sd_known"], sd[found["position"]])
    np.testing.assert_array_equal(found["flagged"], kept.flagged[found["position"]])
    assert np.all(np.diff(found["sd"]) >= 0)
    assert np.all((found["low"] < found["mean"]) & (found["mean"] < found["high"]))
    assert report.summary()["exact"] == {"records": len(found), "smallest": found["sd"].min()}
    lines = str(report).splitlines()
    assert lines[0].startswith(f"DISCLOSURE: {report.verdict.upper()}: ")
    assert any(line.startswith("Exact posterior sd") for line in lines)
    none = assess(ds.synthesise(kept, 3, seed=1, progress=False), exact=0)
    assert none.exact is None
    assert none.summary()["exact"] is None


def test_the_weakest_without_protection_are_integrated_too(report):
    """So that the columns before and after compare numbers of one kind."""
    found = report.exact_before.records
    assert set(found["position"]) == set(report.exact.records["position"])
    for group in (report.release.fit.flagged, ~report.release.fit.flagged):
        rows = np.flatnonzero(group)
        sd = report.before.sd(variances="known")[rows]
        assert set(rows[np.argsort(sd)[:5]]) <= set(found["position"])
    least = found[["sd", "interval", "sd_fixed", "sd_leave_one_out"]].min(axis=1)
    np.testing.assert_array_equal(report.sd_before[found["position"]], least)
    after = report.exact.records.set_index("position")["sd"]
    before = found.set_index("position")["sd"]
    np.testing.assert_allclose(report.rise[before.index], before / after.loc[before.index])
    placing = report.placing().set_index(["stage", "group"])
    members = ~report.release.fit.flagged
    width = half_width(report.release.problem, report.sd)
    weakest = np.flatnonzero(members)[np.argmin(width[members])]
    assert placing.loc[("unrestricted", "unflagged"), "sd"] == report.sd_before[weakest]
    # Shares of records are of one kind on both sides: exact, else lower bounds.
    alike = report.before.sd(variances="known").copy()
    alike[found["position"]] = least
    near = chance_near(report.release.problem, alike)[members].mean()
    assert placing.loc[("unrestricted", "unflagged"), "near"] == near


def test_the_exact_sds_lie_near_the_bounds(report):
    """Not more than 5% below the lower; the upper holds on average over releases."""
    found = report.exact.records
    assert np.all(found["sd"] > 0.95 * found["sd_known"])
    assert np.all(found["sd"] < 1.3 * found["sd_fixed"])


def test_the_table_has_the_smallest_and_median_of_each_group(report, kept):
    table = report.table().set_index(["fit", "group", "copies", "variances"])
    flagged = kept.flagged
    sd = report.after.sd(variances="known")
    row = table.loc[("restricted", "flagged", 20, "known")]
    assert row["smallest"] == sd[flagged].min()
    row = table.loc[("restricted", "unflagged", 20, "known")]
    assert (row["smallest"], row["median"]) == (sd[~flagged].min(), np.median(sd[~flagged]))
    assert len(table) == 2 * 2 * 4 * 2
    np.testing.assert_allclose(
        table.xs(0, level="copies")["smallest"].xs("flagged", level="group"),
        report.after.leave_one_out[flagged].min(),
    )


def test_the_record_whose_risk_rose_most_is_the_one_with_the_largest_ratio(kept):
    """Made to rise: the sds before are those after, but for two records."""
    found = assess(ds.synthesise(kept, 20, seed=1, progress=False), exact=0)
    quiet = dataclasses.replace(found.after, error=np.zeros(60), by_draw=None)
    before = dataclasses.replace(quiet, information=quiet.information.copy())
    before.information[[3, 11]] *= [0.5, 0.2]
    made = dataclasses.replace(found, after=quiet, before=before)
    assert made.risen.tolist() == [3, 11]
    assert made.rose_most == 11
    assert made.summary()["records_risen"] == 2
    assert made.summary()["rose_most"]["position"] == 11
    assert "record 11 " in made.remarks()[0]
    assert made.rise[11] > made.rise[3] > 1.0
    same = dataclasses.replace(made, before=quiet)
    assert same.rose_most is None
    assert same.summary()["rose_most"] is None


def test_a_rise_within_monte_carlo_error_is_not_told_of(kept):
    found = assess(ds.synthesise(kept, 20, seed=1, progress=False), exact=0)
    noisy = dataclasses.replace(found.after, error=found.after.information, by_draw=None)
    before = dataclasses.replace(noisy, information=0.9 * noisy.information)
    made = dataclasses.replace(found, after=noisy, before=before)
    assert np.max(made.rise) > 1.0
    assert made.rose_most is None


def test_a_rise_of_a_few_per_cent_is_not_told_of(kept):
    found = assess(ds.synthesise(kept, 20, seed=1, progress=False), exact=0)
    exact = dataclasses.replace(found.after, error=np.zeros(60), by_draw=None)
    before = dataclasses.replace(exact, information=0.95 * exact.information)
    made = dataclasses.replace(found, after=exact, before=before)
    assert np.max(made.rise) > 1.0
    assert made.risen.size == 0


def test_few_independent_draws_make_the_error_larger(report):
    exact = np.zeros(60)  # the benchmark's own error does not depend on the copies' draws
    after = dataclasses.replace(report.after, leave_one_out_error=exact)
    few = dataclasses.replace(after, effective=after.draws / 4)
    np.testing.assert_allclose(few.relative_error(), 2 * after.relative_error())


def test_the_sds_are_bounded_where_no_record_was_computed_exactly(kept):
    release = ds.synthesise(kept, 3, seed=1, progress=False)
    none, one = (assess(release, draws=20, exact=count, progress=False) for count in (0, 1))
    assert (none.basis, one.basis) == ("bounded", "exact")
    assert "The sds are bounded" in str(none)
    assert "bounded" not in str(one)
    told = Former(one.after.information, one.after.information, releases=1, copies=1)
    more = dataclasses.replace(one, after=dataclasses.replace(one.after, former=told))
    assert more.basis == "bounded"
    assert "The sds are bounded" in str(more)


def test_before_and_after_share_one_benchmark_at_a_finite_gamma(small, free):
    weights = ds.flag_isolated(free, distance=0.15)
    kept = ds.fit(small, weights=weights, gamma=10.0, start=free, seed=2, **FAST)
    found = assess(ds.synthesise(kept, 5, seed=1, accept_failed=True, progress=False), exact=0)
    np.testing.assert_array_equal(found.after.leave_one_out, found.before.leave_one_out)


def test_the_monte_carlo_error_is_that_of_repeated_halves_of_the_draws(kept):
    """Its size against the spread of the known precision over disjoint sets of draws."""
    n, parts = 60, 20
    draws = kept.draws
    whole = attack(kept, copies=20, draws=400)
    means = []
    for k in range(parts):
        some = {name: d[:, k::parts] for name, d in draws.items()}
        part = attack(dataclasses.replace(kept, draws=some), copies=20, draws=100)
        means.append(part.information + part.leak)
    spread = np.std(means, axis=0, ddof=1)
    # 400 draws against 100 of each part; the ratio of two sds with 19 degrees of freedom.
    ratio = 2.0 * whole.error / spread
    assert np.median(ratio) == pytest.approx(1.0, abs=0.35)
    assert whole.relative_error().shape == (n,)


def test_the_floor_counts_records_and_gives_the_largest_release(report):
    assert report.below_floor.tolist() == np.flatnonzero(report.sd < 0.1).tolist()
    most = report.largest_release
    # Of the copies that were released the exact sds count where the bounds fall short.
    at_most = report.sd if most == 20 else report.after.sd(most, variances="known")
    assert at_most.min() >= 0.1
    assert report.after.sd(most + 1, variances="known").min() < 0.1
    assert report.summary()["floor"] == {
        "asked": "0.1",
        "sd": 0.1,
        "records_below": report.below_floor.size,
        "largest_release": most,
    }


@pytest.mark.parametrize("floor", [0.0, -1.0, np.nan, np.inf])
def test_a_floor_out_of_range_is_refused(kept, floor):
    release = ds.synthesise(kept, 2, seed=1, progress=False)
    with pytest.raises(InputError, match="floor must be positive"):
        assess(release, floor=floor)


def odd_tables():
    """Values of every awkward kind, on the scale of the formula."""
    base = small_table(40, shared=4)
    rng = np.random.default_rng(3)
    negative = base.assign(value=rng.normal(0.0, 3.0, 40))
    zeros = base.assign(value=np.where(np.arange(40) % 4 == 0, 0.0, rng.gamma(2.0, 1.0, 40)))
    ties = base.assign(value=np.round(rng.normal(5.0, 2.0, 40)))
    return {
        "logs": (base, "log(value) ~ x"),
        "negative values": (negative, "value ~ x"),
        "zeros": (zeros, "value ~ x"),
        "ties": (ties, "value ~ x"),
    }


@lru_cache
def odd_fit(name):
    """The unrestricted fit of an awkward table."""
    table, formula = odd_tables()[name]
    problem = ds.prepare(table, formula, coords=("east", "north"))
    return ds.fit(problem, seed=1, **FAST)


@pytest.mark.parametrize("flags", ["none", "one", "all"])
@pytest.mark.parametrize("name", list(odd_tables()))
@pytest.mark.filterwarnings("ignore::dsstan.core.errors.DsstanWarning")
def test_every_odd_case_gives_numbers_and_never_nan(name, flags):
    free = odd_fit(name)
    a = {"none": np.zeros(40), "one": np.arange(40) == 39, "all": np.ones(40)}[flags]
    weights = own_weights(free.problem, a)
    kept = ds.fit(free.problem, weights=weights, start=free, seed=2, **FAST)
    for copies in (1, 2):
        release = ds.synthesise(kept, copies, seed=3, accept_failed=True, progress=False)
        found = assess(release, floor=0.1, absolute=1.0, draws=20, exact=0)
        records = found.records.drop(columns="flagged")
        within = records.pop("placed_within")  # of a value of 0 there is no share
        np.testing.assert_array_equal(np.isinf(within), free.problem.original() == 0)
        assert np.isfinite(records.to_numpy(dtype=float)).all()
        assert np.all(records.filter(like="sd_") > 0)
        assert np.isfinite(found.table()["smallest"]).all()
        assert "nan" not in json.dumps(found.summary(), allow_nan=False).lower()
        assert "nan" not in str(found)


def test_copies_equal_to_the_original_have_all_shares(kept):
    release = ds.synthesise(kept, 3, seed=1, progress=False)
    same = dataclasses.replace(release, values=np.tile(kept.problem.original(), (3, 1)))
    found = assess(same, draws=20, exact=0)
    assert np.all(found.records["within_relative_restricted"] == 1.0)
    assert np.isfinite(found.records.drop(columns="flagged").to_numpy(dtype=float)).all()


def test_an_unprotected_release_has_no_before(free):
    found = assess(ds.synthesise(free, 4, seed=1, progress=False), exact=0)
    assert found.before is None
    assert found.rose_most is None
    assert found.summary()["restricted"] is None
    assert set(found.table()["fit"]) == {"unrestricted"}
    assert "sd_known_4_unrestricted" in found.records
    assert not [c for c in found.records if c.endswith("_restricted")]


def test_the_picture_of_the_release_size_runs_over_l_and_has_the_floor(report):
    plot = plot_release_size(report, most=100)
    assert plot.data["copies"].max() == 100
    assert (plot.data["known"] <= plot.data["fixed"] * (1 + 1e-12)).all()
    assert len(plot.layers) == 4
    with pytest.raises(InputError, match="most must be"):
        plot_release_size(report, most=1)
