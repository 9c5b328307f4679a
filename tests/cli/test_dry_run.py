"""``--dry-run`` checks what a run would, estimates from real pieces, and writes nothing."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from memory import table_of
from scipy.spatial.distance import pdist, squareform
from test_command_line import MODEL, inside  # noqa: F401

import dsstan as ds
from conftest import case, small_table
from dsstan.cli.dry_run import estimate as _estimate
from dsstan.cli.dry_run import rehearsal as _rehearsal
from dsstan.cli.dry_run.estimate import FEW, FEW_EXACT, MORE_EXACT, estimate_release
from dsstan.cli.dry_run.plan import METHOD
from dsstan.cli.dry_run.planning import plan_release
from dsstan.cli.dry_run.rehearsal import SMALL, Rehearsal, _part, _some_rows, rehearse
from dsstan.copies.options import ReleaseOptions
from dsstan.core.errors import InputError
from dsstan.covariance import approximations
from dsstan.models.weights import neighbour_distances
from dsstan.risk.intruder import variance_grid
from dsstan.risk.intruder.leave_one_out import leave_one_out

OPTIONS = ReleaseOptions(
    **{"coords": ("s1", "s2"), "name": "t", "threshold": 0.05, "engine": "embedded"},
    **{"chains": 2, "warmup": 200, "samples": 200},
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "homes.csv"
    small_table(40, seed=9, shared=4).to_csv(path, index=False)
    return path


def planned(file):
    """The problem of the table of the file."""
    return ds.prepare(pd.read_csv(file), "log(value) ~ x", coords=("east", "north"))


def tree(folder):
    """What is there: folders, and files with their time and size."""
    return {
        p: (p.stat().st_mtime_ns, p.stat().st_size) if p.is_file() else None
        for p in folder.rglob("*")
    }


@pytest.fixture
def confined(tmp_path, tmp_path_factory, monkeypatch):
    """Every place a run may write to, below one folder."""
    monkeypatch.delenv("CMDSTAN", raising=False)  # under CmdStan programs are compiled first
    for name in ("tmp", "work", "cache", "home"):
        (tmp_path / name).mkdir()
    for key, name in (
        ("TMPDIR", "tmp"),
        ("DSSTAN_WORKDIR", "work"),
        ("DSSTAN_CACHE", "cache"),
        ("XDG_CACHE_HOME", "cache"),
        ("HOME", "home"),
    ):
        monkeypatch.setenv(key, str(tmp_path / name))
    # Matplotlib makes a folder for its settings wherever it is imported.
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path_factory.mktemp("matplotlib")))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_dry_run_writes_nothing_and_says_what_would_be_done(inside, file, confined):  # noqa: F811
    before = tree(confined)
    result = inside("synthesise", file, *MODEL, "--dry-run", "--json", "--out", "out")
    assert result.returncode == 0, result.stderr
    assert tree(confined) == before
    found = json.loads(result.stdout)
    assert (found["dry_run"], found["confidential"], found["no_estimate"]) == (True, True, None)
    plan = found["plan"]
    assert plan["records"] == 40
    assert plan["sites"] == 36
    assert plan["terms"] == ["Intercept", "x"]
    assert plan["programs"] == ["surface", "surface"]
    seconds = found["estimate"]["seconds"]
    assert all(value > 0 for value in seconds.values())
    total = seconds.pop("total")
    assert total == pytest.approx(sum(seconds.values()))
    assert found["estimate"]["peak_mib"] > 0
    assert found["estimate"]["method"] == METHOD


def test_a_job_can_be_tried_dry(inside, file, confined):  # noqa: F811
    (confined / "job.toml").write_text(
        'table = "homes.csv"\nformula = "log(value) ~ x"\ncoords = ["east", "north"]\n'
        'out = "out"\nthreshold = 0.15\nchains = 2\nwarmup = 200\nsamples = 200\n'
        'engine = "embedded"\n'
    )
    before = tree(confined)
    result = inside("run", "job.toml", "--dry-run")
    assert result.returncode == 0, result.stderr
    assert tree(confined) == before
    assert "nothing was written" in result.stdout
    assert "MiB at the peak" in result.stdout
    assert "An estimate" in result.stdout
    nearest = np.sort(neighbour_distances(planned(file)))
    said = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "rule no neighbour within 0.15 coordinate units" in said
    assert f"flagged {np.sum(nearest >= 0.15)}" in said
    assert "largest distances " + ", ".join(f"{d:.4g}" for d in nearest[:-6:-1]) in said
    assert "value replaced response: synthetic values go out in its place" in said
    assert "surface" not in said


def test_a_comparison_can_be_tried_dry(inside, file, confined):  # noqa: F811
    before = tree(confined)
    result = inside(
        *("compare", file, *MODEL, "--threshold", "0.2", "--protection", "paper", "--copies", "4"),
        *("--chains", "2", "--warmup", "200", "--samples", "200", "--engine", "embedded"),
        *("--dry-run", "--json", "--out", "grid"),
    )
    assert result.returncode == 0, result.stderr
    assert tree(confined) == before
    found = json.loads(result.stdout)
    assert found["plan"]["settings"] == 3  # no protection, and two distances
    assert found["estimate"]["seconds"]["settings"] > 0


PANEL = """table = "rents.csv"
coords = ["x", "y"]
time = "year"
out = "out"
engine = "embedded"
"""


@pytest.fixture
def rents(confined):
    """A panel with four years a place in six districts, and how many rooms there are."""
    table = case("panel.csv").iloc[lambda t: np.flatnonzero(t.index % 80 < 30)]
    table = table.assign(district=(table["x"] // 7).astype(int), rooms=table["area"] // 30)
    table.to_csv(confined / "rents.csv", index=False)
    return confined / "job.toml"


def test_a_dry_run_of_a_panel_advises_to_count_places(inside, rents):  # noqa: F811
    one = 'formula = "log(rent) ~ 1 + (1 | district)"\nthreshold = 1.0\n'
    rents.write_text(PANEL + one)
    said = " ".join(inside("run", rents, "--dry-run").stdout.split())
    assert "none stands alone on the map: count places as neighbours (by_site = true)" in said
    assert "other thresholds" not in said
    assert "year goes out" in said
    assert "district goes out" in said
    rents.write_text(PANEL + one + "by_site = true\n")
    assert "count places" not in inside("run", rents, "--dry-run").stdout


def test_a_panel_is_refused_where_no_fit_could_take_it(inside, rents):  # noqa: F811
    step = '[[steps]]\noutcome = "poisson"\nformula = "rooms ~ 1"\n'
    rents.write_text(PANEL + step)
    result = inside("run", rents, "--dry-run")
    assert result.returncode == 2
    said = " ".join(result.stderr.replace("│", " ").split())
    assert 'time = "year" is for the Gaussian model of dsstan.fit alone' in said
    rents.write_text(PANEL + 'formula = "log(rent) ~ 1"\ncovariance = "vecchia"\n')
    said = " ".join(inside("run", rents, "--dry-run").stderr.replace("│", " ").split())
    assert 'time = "year" needs the exact covariance: covariance = "vecchia" has neither' in said


def test_the_number_flagged_and_the_programs_are_those_of_the_fits(free, kept):
    problem = kept.problem
    options = replace(OPTIONS, coords=("east", "north"), threshold=0.15)
    plan = plan_release(problem.table, problem.formula, options, floor=None, target="out")
    assert plan.what["flagged"] == kept.weights.n_flagged
    assert plan.what["programs"] == [free.program, kept.program]


@pytest.mark.parametrize(
    ("protection", "gaps", "covariance"),
    [("paper", 0, "auto"), ("cut", 0, "exact"), ("paper", 4, "auto"), ("cut", 4, "vecchia")],
)
def test_the_engine_programs_and_covariance_of_a_plan_are_those_of_the_run(
    protection, gaps, covariance, monkeypatch
):
    # With gaps as many records inform the fit as "auto" takes for the exact covariance.
    monkeypatch.setattr(approximations, "EXACT_LIMIT", 36)
    table = small_table(40, seed=9, shared=4)
    table.loc[table.index[:gaps], "value"] = np.nan
    more = {"coords": ("east", "north"), "threshold": 0.15, "copies": 4, "imputations": None}
    more |= {"protection": protection, "missing": "draw", "covariance": covariance}
    more |= {"warmup": 50, "samples": 50, "imputations": 2 if gaps else None, "seed": 3}
    more |= {"chains": 2, "engine": "embedded"}
    options = ReleaseOptions(**more)
    plan = plan_release(table, "log(value) ~ x", options, floor=None, target=Path("out")).what
    release = ds.protect(table, "log(value) ~ x", accept_failed=True, progress=False, **more)
    free, kept = release.fit.start, release.fit
    assert plan["programs"] == [free.program, kept.program]
    assert plan["engine"] == free.engine == kept.engine
    assert plan["covariance"] == free.covariance.name


def test_a_rule_by_correlation_flags_by_the_posterior_that_was_drawn(file, inside, confined):  # noqa: F811
    result = inside(
        *("synthesise", file, *MODEL[:-2], "--correlation", "0.2", "--dry-run", "--json"),
        *("--chains", "2", "--warmup", "200", "--samples", "200", "--out", "out"),
    )
    plan = json.loads(result.stdout)["plan"]
    free = ds.fit(planned(file), engine="direct", seed=0, progress=False)
    weights = ds.flag_isolated(free, correlation=0.2)
    # The median of phi differs by its Monte Carlo error.
    assert abs(plan["flagged"] - weights.n_flagged) <= 2
    assert plan["rule"].startswith("correlation with neighbour at most 0.2; the fit says who")


@pytest.mark.parametrize(
    ("threshold", "code", "flagged", "said"),
    [
        ("1e-9", 3, 40, "most-flagged, flagged share 1"),
        ("50", 0, 0, "no record is flagged, so nothing is smoothed: the largest distance"),
    ],
)
def test_a_threshold_in_another_unit_is_told_before_any_sampling(
    inside,  # noqa: F811
    file,
    confined,
    threshold,
    code,
    flagged,
    said,
):
    asked = (*MODEL[:-2], "--threshold", threshold, "--neighbour", "2", "--dry-run", "--json")
    result = inside("synthesise", file, *asked, "--out", "out")
    assert result.returncode == code
    found = json.loads(result.stdout)
    assert found["plan"]["flagged"] == flagged
    assert any(said in line for line in found["failures"] + found["warnings"])
    nearest = neighbour_distances(planned(file), neighbour=2)
    assert len(found["plan"]["thresholds"]) == 5
    for one in found["plan"]["thresholds"]:
        assert one["flagged"] == np.sum(nearest >= one["threshold"]) > 0


def test_a_fit_that_will_fail_is_told_before_any_sampling(inside, confined):  # noqa: F811
    table = small_table(40, seed=9, shared=4)
    d = squareform(pdist(table[["east", "north"]]))
    root = np.linalg.cholesky(np.exp(-d) + 1e-10 * np.eye(40))
    smooth = root @ np.random.default_rng(3).normal(size=40)
    table["value"] = np.exp(smooth)  # no noise: those at one site are equal
    table.to_csv(confined / "smooth.csv", index=False)
    asked = ("--formula", "log(value) ~ 1", "--coords", "east", "north", "--threshold", "0.15")
    result = inside("synthesise", "smooth.csv", *asked, "--dry-run", "--out", "out")
    assert result.returncode == 3
    assert "The run would fail its verdict" in result.stdout
    assert "no-nugget" in result.stdout


def test_a_floor_that_nothing_meets_is_told_before_any_sampling(inside, file, confined):  # noqa: F811
    asked = ("synthesise", file, *MODEL, "--dry-run", "--out", "out", "--floor", "90%")
    result = inside(*asked)
    assert result.returncode == 5
    assert "The run would end in DISCLOSURE: MISSED" in result.stdout
    assert "no release keeps it for them" in " ".join(result.stdout.split())
    accepted = inside(*asked, "--accept-below-floor", "--reason", "a test", "--json")
    assert accepted.returncode == 0
    assert len(json.loads(accepted.stdout)["missed"]) == 1


def test_copies_too_many_for_a_floor_are_told_before_any_sampling(inside, file, confined):  # noqa: F811
    alone = leave_one_out(ds.fit(planned(file), engine="direct", seed=1, progress=False)).sd
    floor = str(round(0.9 * alone.min(), 4))
    asked = ("synthesise", file, *MODEL, "--engine", "direct", "--copies", "100", "--dry-run")
    result = inside(*asked, "--out", "out", "--floor", floor)
    assert result.returncode == 5
    said = " ".join(result.stdout.split())
    assert f"of 40 records would be below the floor {floor}" in said
    assert "--protection auto looks for that" in said


@pytest.mark.parametrize("protection", ["paper", "auto"])
def test_a_search_is_not_judged_by_the_rule_it_does_not_use(inside, file, confined, protection):  # noqa: F811
    rule = ("--threshold", "0.01") if protection == "paper" else ()
    asked = ("synthesise", file, *MODEL[:-2], *rule, "--engine", "direct", "--floor", "1%")
    result = inside(*asked, "--protection", protection, "--dry-run", "--out", "out")
    assert result.returncode == (3 if rule else 0), result.stdout
    assert ("most-flagged" in result.stdout) is bool(rule)


def test_the_estimate_adds_up_what_the_pieces_took(monkeypatch):
    """Times are given, so that nothing depends on the machine: one copy 1 s, each more 0.5 s."""
    problem = ds.prepare(table_of(40), "log(value) ~ 1", coords=("s1", "s2"))
    rehearsed = rehearse(problem, OPTIONS)
    # One copy, several; bounds, shares and utility; of the copies and of those without protection
    # a few and more exact records.
    exact = [2.0 + 0.2 * FEW_EXACT, 2.0 + 0.2 * MORE_EXACT]
    times = iter([1.0, 1.0 + 0.5 * (FEW - 1), 7.0, 0.25, *exact, *exact])
    monkeypatch.setattr(_estimate, "timed", lambda call: (next(times), call()))
    found = estimate_release(rehearsed, 21, 0.75)
    assert found.seconds["reading"] == 0.75
    assert found.seconds["copies"] == 1.0 + 0.5 * 20
    integrals = 2 * (2.0 + 0.2 * 40)  # all of so few records
    disclosure = 7.0 + integrals + 0.25 + found.seconds["copies"]
    assert found.seconds["disclosure"] == pytest.approx(disclosure)
    assert found.seconds["unrestricted fit"] > rehearsed.sampler_seconds > 0
    assert found.total == sum(found.seconds.values())
    assert found.peak_mib > 0


def test_what_is_linear_in_the_records_is_carried_on_from_two_sizes():
    def of(records):
        return SimpleNamespace(records=records)

    whole = SimpleNamespace(problem=SimpleNamespace(n_records=10_000))
    rehearsed = Rehearsal(
        part=of(2000), smaller=of(500), weights=None, model=whole, sampler_seconds=0.0
    )
    assert rehearsed.linear(lambda part: 3.0 + 0.001 * part.records) == pytest.approx(13.0)


def test_measures_under_an_exact_covariance_are_carried_on_by_the_square_of_n():
    def of(records):
        return SimpleNamespace(records=records)

    exact = SimpleNamespace(approximate=False)
    whole = SimpleNamespace(problem=SimpleNamespace(n_records=1200), covariance=exact)
    rehearsed = Rehearsal(
        part=of(300), smaller=of(75), weights=None, model=whole, sampler_seconds=0.0
    )
    found = rehearsed.of_table(lambda part: 3.0 + 1e-5 * part.records**2)
    assert found == pytest.approx(3.0 + 14.4)


def test_no_exact_posterior_is_counted_of_a_table_that_has_none(monkeypatch):
    """The part could be integrated, the table can't: its estimate was 17 times the run."""
    monkeypatch.setattr(_rehearsal, "SMALL", 40)
    monkeypatch.setattr(variance_grid, "MOST_RECORDS", 60)
    monkeypatch.setattr(_estimate, "_integrals", lambda *_: 1e6)
    for records, counted in ((80, False), (50, True)):
        problem = ds.prepare(table_of(records), "log(value) ~ 1", coords=("s1", "s2"))
        found = estimate_release(rehearse(problem, OPTIONS), 10, 0.0)
        assert (found.seconds["disclosure"] > 1e6) is counted


def test_a_rehearsal_of_a_large_table_keeps_the_rank_of_its_design():
    """A category that one record in four hundred has: any fewer rows would lose it."""
    table = table_of(400)
    table["kind"] = ["rare"] + ["common"] * 399
    problem = ds.prepare(table, "log(value) ~ kind", coords=("s1", "s2"))
    rows = _some_rows(problem)
    assert rows.size >= SMALL
    part = _part(problem, rows)
    assert np.linalg.matrix_rank(part.X) == problem.n_terms
    assert part.n_records == rows.size == len(part.table)
    assert part.n_sites == len(np.unique(problem.site_index[rows]))


def test_what_grows_with_the_table_is_timed_on_the_model_of_the_whole_one(monkeypatch):
    """The short fits are of the part; nothing that was sampled speaks for the other records."""
    monkeypatch.setattr(_rehearsal, "SMALL", 40)
    monkeypatch.setattr(_rehearsal, "_some_rows", lambda problem, count: np.arange(40))
    problem = ds.prepare(table_of(80), "log(value) ~ 1", coords=("s1", "s2"))
    rehearsed = rehearse(problem, OPTIONS)
    model = rehearsed.model
    assert not isinstance(model, ds.Fit)
    assert model.problem is problem
    assert (rehearsed.part.records, rehearsed.whole) == (40, False)
    nearest = neighbour_distances(problem)
    assert np.array_equal(model.A == 0, nearest >= OPTIONS.threshold)
    found = estimate_release(rehearsed, 10, 0.0)
    assert min(found.seconds["copies"], found.seconds["disclosure"]) > 0


# What a run would refuse


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--formula", "log(value) ~ z"), 2, "'z'"),
        (("--coords", "east", "south"), 2, "'south'"),
        (("--floor", "-1"), 2, "floor"),
        (("--protection", "none"), 2, "protection must be one of paper"),
        (("--engine", "stan"), 2, "engine"),
        (("--chains", "0"), 2, "chains"),
        (("--chains", "100000"), 2, "at most 1,000"),
        (("--chains", "1000"), 2, "chains times samples must be at most 100,000"),
        (("--warmup", "200000000"), 2, "would run for days"),
        (("--covariance", "vecchia", "--neighbours", "1000000000"), 2, "grows with their cube"),
        (("--seed", "-1"), 2, "seed"),
        (("--neighbour", "99"), 2, "neighbour"),
        (("--phi-bounds", "2", "1"), 2, "phi_bounds"),
        (("--phi-bounds", "1e300", "1e308"), 2, "beyond what the places of the table can tell"),
        (("--copies", "4001"), 2, "as many posterior draws"),
        (("--protection", "cut", "--threshold", "1e-6", "--neighbour", "2"), 2, '"cut" leaves'),
        (("--out", "."), 4, "exists"),
        (("--out", "o" * 240), 4, "is too long a name"),
        (("--out", "o" * 5000), 4, "is too long a name"),
    ],
)
def test_what_a_run_refuses_a_dry_run_refuses_too(
    inside,  # noqa: F811
    file,
    confined,
    arguments,
    code,
    said,
):
    result = inside("synthesise", file, *MODEL, "--out", "out", "--dry-run", *arguments)
    assert result.returncode == code, result.stderr
    assert said in result.stderr


@pytest.mark.parametrize("more", [("--dry-run",), (), ("--protection", "auto", "--dry-run")])
def test_a_floor_is_refused_before_sampling_where_nothing_can_be_judged(
    inside,  # noqa: F811
    file,
    confined,
    more,
):
    table = small_table(40, seed=9, shared=4)
    table.loc[[3, 8], "value"] = np.nan
    table.to_csv(file, index=False)
    asked = ("--missing", "draw", "--imputations", "2", "--copies", "4", "--floor", "10%")
    result = inside("synthesise", file, *MODEL, *asked, "--out", "out", *more)
    assert result.returncode == 2, result.stderr
    assert "no intruder is" in result.stderr
    without = inside("synthesise", file, *MODEL, *asked[:-2], "--out", "out", "--dry-run")
    assert "DISCLOSURE will be NOT JUDGED" in " ".join(without.stdout.split())


def test_a_dry_run_without_a_floor_says_that_nothing_will_be_judged(inside, file, confined):  # noqa: F811
    asked = ("synthesise", file, *MODEL, "--dry-run", "--out", "out")
    for more, said in (((), True), (("--floor", "1%"), False)):
        printed = " ".join(inside(*asked, *more).stdout.split())
        assert ("DISCLOSURE will be NOT JUDGED" in printed) is said


@pytest.mark.parametrize(
    ("damage", "publish", "said"),
    [
        (lambda t: t.assign(note=["=1+1"] * 40), "note", "begins like a formula"),
        (lambda t: t.sort_values("value"), "x", "in the order of the response"),
        (lambda t: t.assign(z=2.0 * t["value"]), "z", "predict the response"),
    ],
)
def test_a_table_that_would_not_be_published_is_refused_dry(
    inside,  # noqa: F811
    file,
    confined,
    damage,
    publish,
    said,
):
    damage(small_table(40, seed=9, shared=4)).to_csv(file, index=False)
    asked = ("--publish", publish, "--out", "out", "--dry-run")
    result = inside("synthesise", file, *MODEL, *asked)
    assert result.returncode == 4, result.stderr
    assert said in result.stderr


def test_a_dry_comparison_refuses_an_empty_grid_of_copies(inside, file, confined):  # noqa: F811
    result = inside("compare", file, *MODEL, "--copies", "1", "--dry-run", "--out", "grid")
    assert (result.returncode, (confined / "grid").exists()) == (2, False)
    assert "at least 2" in result.stderr


def test_a_rehearsal_that_fails_leaves_the_plan_without_an_estimate(monkeypatch):
    def fail(*arguments, **options):
        raise InputError("no rehearsal")

    monkeypatch.setattr("dsstan.cli.dry_run.planning.rehearse", fail)
    with warnings.catch_warnings():
        plan = plan_release(table_of(40), "log(value) ~ 1", OPTIONS, floor=None, target="out")
    assert (plan.estimate, plan.reason) == (None, "no rehearsal")


def test_a_dry_run_lists_every_column_with_its_role_and_whether_it_goes_out(inside, file, confined):  # noqa: F811
    table = small_table(40, seed=9, shared=4)
    table["parcel"] = [f"P{k}" for k in np.random.default_rng(1).permutation(40)]
    table["year"] = np.random.default_rng(2).integers(1990, 2000, 40)
    table.to_csv(file, index=False)
    asked = ("--publish", "year", "--out", "out", "--dry-run", "--json")
    columns = json.loads(inside("synthesise", file, *MODEL, *asked).stdout)["plan"]["columns"]
    assert {name: one["published"] for name, one in columns.items()} == {
        **dict.fromkeys(("east", "north", "x", "value", "year"), True),
        "parcel": False,
    }
    assert columns["parcel"]["role"] == "identifier"
    assert columns["year"]["role"] == "covariate"


def test_a_plan_of_many_columns_under_stan_names_the_engine_that_is_fast(monkeypatch):
    monkeypatch.setattr("dsstan.cli.dry_run.planning.rehearse", None)
    table = small_table(300, seed=9).assign(level=[f"L{k % 50}" for k in range(300)])
    options = replace(OPTIONS, coords=("east", "north"))
    plan = plan_release(table, "log(value) ~ level", options, floor=None, target=Path("out"))
    assert plan.estimate is None
    assert 'engine="direct"' in plan.reason


def test_a_formula_of_few_records_a_column_and_many_zeros_are_foreseen(inside, tmp_path):  # noqa: F811
    table = small_table(40, seed=9).assign(level=[f"L{k % 9}" for k in range(40)])
    table.loc[::4, "value"], table.loc[39, "level"] = 0.0, "only here"
    table.to_csv(tmp_path / "t.csv", index=False)
    ran = inside(
        *("synthesise", tmp_path / "t.csv", "--formula", "log1p(value) ~ x + level"),
        *("--coords", "east", "north", "--threshold", "0.15", "--out", tmp_path / "out"),
        *("--dry-run", "--accept-failed"),
    )
    said = " ".join(ran.stdout.split())
    assert "11 columns are estimated from 40 records" in said, ran.stderr
    assert "1 record alone decides a coefficient, as the only record of a level does" in said
    assert "pool levels that have few records" in said
    assert "25% of 'value' are 0, and a normal law draws none" in said


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_a_ridge_of_levels_is_refused_by_a_stan_engine_and_fitted_directly(inside, tmp_path, dry):  # noqa: F811
    """51 columns of 80 records: neither a run nor a dry run came back within 300 s."""
    case("lev50.csv").to_csv(tmp_path / "lev50.csv", index=False)
    formula = "log(rent) ~ log(area) + lev"
    asked = ("synthesise", tmp_path / "lev50.csv", "--formula", formula, "--coords", "x", "y")
    ran = inside(*asked, "--engine", "embedded", "--out", tmp_path / "out", *dry)
    assert ran.returncode == 2
    said = " ".join(ran.stderr.split())
    assert "51 columns for 80 records" in said
    assert "--engine direct draws from the same posterior in seconds. Or pool levels" in said
    problem = ds.prepare(case("lev50.csv"), formula, coords=("x", "y"))
    assert ds.fit(problem, progress=False, seed=2**100, samples=100).engine == "direct"
