"""Several synthetic columns, each drawn given the synthetic values of the former."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import dsstan as ds
from conftest import small_table
from dsstan.analysis.pmse import pmse
from dsstan.analysis.pooling import pool
from dsstan.analysis.spatial_utility import compare_morans_i, spatial_regression
from dsstan.cli.commands.steps import run_chain
from dsstan.cli.options import Run
from dsstan.copies.chain import check_chain
from dsstan.copies.options import ReleaseOptions
from dsstan.copies.step_models import StepModel
from dsstan.core.errors import InputError, TableError
from dsstan.models.adaptive.fit import fit_adaptive
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.counts.fit import fit_counts
from dsstan.models.groups.fit import fit_multivariate
from dsstan.release.reading import read_release
from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.weaker import weak_attack
from dsstan.risk.joint_disclosure import joint_disclosure
from dsstan.risk.keys.identification import identification
from dsstan.table.formulas.formula import build_design, parse

COORDS = ("east", "north")
AREA, PRICE = "log(area) ~ x", "log(price) ~ scale(log(area))"
SHORT = {"engine": "embedded", "progress": False, "samples": 2000}
FALSE_ALARM = 1e-5
ROUNDING = 1e-9


def homes(n=80):
    """Areas by a covariate, prices by the area, both with a spatial effect."""
    table = small_table(n)
    rng = np.random.default_rng(3)
    table["area"] = np.exp(4 + 0.3 * table["x"] + 0.3 * rng.normal(size=n)).round()
    effect = np.log(table["value"]) - 5.0 - 0.7 * table["x"]
    noise = 0.1 * rng.normal(size=n)
    table["price"] = np.exp(5 + 0.9 * np.log(table["area"]) + effect + noise).round()
    table["tax"] = (0.01 * table["price"] * np.exp(rng.normal(size=n))).round(2)
    return table.drop(columns="value")


def prepared(table, formula):
    return ds.prepare(table, formula, coords=COORDS, name="homes")


def fitted(problem, seed):
    free = ds.fit(problem, seed=seed, **SHORT)
    weights = ds.flag_isolated(free, distance=0.15)
    return ds.fit(problem, weights=weights, start=free, seed=seed + 1, **SHORT)


@pytest.fixture(scope="module")
def table():
    return homes()


@pytest.fixture(scope="module")
def fits(table):
    return fitted(prepared(table, AREA), 1), fitted(prepared(table, PRICE), 3)


@pytest.fixture(scope="module")
def area(fits):
    return ds.synthesise(fits[0], 20, seed=5, progress=False)


@pytest.fixture(scope="module")
def chain(fits, area):
    return ds.synthesise(fits[1], 20, seed=6, given=area, progress=False)


def test_a_copy_is_drawn_at_the_synthetic_covariates(fits, area):
    """The same stream at the real covariates differs by (X_l - X) beta and nothing else."""
    options = {"copies": 20, "seed": 6, "rounding": "none", "progress": False}
    table = fits[1].problem.table.assign(price=fits[1].problem.table["price"].astype(float))
    problem = prepared(table, PRICE)
    fit = fitted(problem, 3)
    at_real, at_synthetic = ds.synthesise(fit, **options), ds.synthesise(fit, given=area, **options)
    log_area = np.log(table["area"].to_numpy())
    for copy in range(20):
        chain, iteration = at_real.draw_index[copy]
        beta = fit.draws["beta"][chain, iteration]
        standard = (np.log(area.values[copy]) - log_area.mean()) / log_area.std(ddof=1)
        moved = (standard - problem.X[:, 1]) * beta[1]
        gap = np.log(at_synthetic.values[copy]) - np.log(at_real.values[copy])
        assert np.allclose(gap, moved, atol=ROUNDING)


def test_the_copies_keep_how_the_columns_go_together(chain, fits, area):
    """Prices drawn at the real areas lose part of the slope once the areas are replaced."""

    def slope(copies_of_area, copies_of_price):
        rows = [
            np.polyfit(np.log(a), np.log(p), 1, cov=True)
            for a, p in zip(copies_of_area, copies_of_price, strict=True)
        ]
        q, u = np.array([[r[0][0]] for r in rows]), np.array([[r[1][0, 0]] for r in rows])
        return ds.combine(q, u)

    original = np.polyfit(
        np.log(chain.problem.table["area"]), np.log(chain.problem.table["price"]), 1, cov=True
    )
    joint = slope(area.values, chain.values)
    limit = stats.norm.isf(FALSE_ALARM / 2)
    spread = np.sqrt(joint.variance[0] + original[1][0, 0])
    assert abs(joint.estimate[0] - original[0][0]) < limit * spread
    apart = slope(area.values, ds.synthesise(fits[1], 20, seed=8, progress=False).values)
    assert apart.estimate[0] < 0.75 * joint.estimate[0]


def test_utility_takes_the_covariates_of_each_copy(chain, area):
    found = ds.utility(chain)
    design = build_design(parse(PRICE), chain.problem.table)
    q, u = [], []
    for a, p in zip(area.values, chain.values, strict=True):
        X = design.X_of(chain.problem.table.assign(area=a))
        coef, rest = np.linalg.lstsq(X, np.log(p), rcond=None)[:2]
        q.append(coef)
        u.append(rest[0] / (len(X) - 2) * np.diag(np.linalg.inv(X.T @ X)))
    expected = ds.combine(q, u)
    row = found.get("restricted", "scale(log(area))")
    assert row["estimate"] == pytest.approx(expected.estimate[1])
    assert row["se"] == pytest.approx(np.sqrt(expected.variance[1]))


def test_any_analysis_of_the_joint_release_is_pooled(chain, area):
    def ratio(copy: pd.DataFrame):
        value = np.log(copy["price"] / copy["area"])
        return value.mean(), value.var() / len(value)

    found = pool(chain, ratio).get("restricted", "0")
    logs = np.log(chain.values / area.values)
    expected = ds.combine(logs.mean(1)[:, None], (logs.var(1, ddof=1) / logs.shape[1])[:, None])
    assert found["estimate"] == pytest.approx(expected.estimate[0])
    assert found["se"] == pytest.approx(np.sqrt(expected.variance[0]))


def test_one_seed_gives_two_columns_noise_of_their_own(fits):
    """Innovations of the two columns, standardised by hand, are uncorrelated."""
    area, price = (ds.synthesise(fit, 20, seed=7, progress=False) for fit in fits)
    scores = []
    for release in (area, price):
        deviations = release.modelled() - release.modelled().mean(axis=0)
        scores.append((deviations / deviations.std(axis=0)).ravel())
    correlation = np.corrcoef(*scores)[0, 1]
    # 20 x 80 deviations, of which at least those of different copies are independent.
    assert abs(correlation) < stats.norm.isf(FALSE_ALARM / 2) / np.sqrt(19 * 20)


def test_a_third_step_sees_every_synthetic_column_before_it(table, chain):
    problem = prepared(table, "log(tax) ~ log(price) + log(area)")
    fit = fitted(problem, 9)
    # The verdict of so short a fit hangs on the machine's rounding, and is no matter here.
    options = {"copies": 20, "seed": 1, "rounding": "none", "accept_failed": True}
    options |= {"progress": False}
    alone, last = ds.synthesise(fit, **options), ds.synthesise(fit, given=chain, **options)
    copy = last.given[0].values[4], last.given[1].values[4]
    beta = fit.draws["beta"][tuple(last.draw_index[4])]
    moved = beta[1] * np.log(copy[1] / table["price"]) + beta[2] * np.log(copy[0] / table["area"])
    gap = np.log(last.values[4] / alone.values[4])
    assert np.allclose(gap, moved, atol=ROUNDING)


def test_native_tables_hold_no_real_value_of_a_synthetic_column(table, chain, area):
    polars = pytest.importorskip("polars")
    frame = polars.from_pandas(table)
    one = ds.fit(prepared(frame, AREA), seed=1, **SHORT)
    two = ds.fit(prepared(frame, PRICE), seed=2, **SHORT)
    first = ds.synthesise(one, 2, seed=3, progress=False)
    both = ds.synthesise(two, 2, seed=4, given=first, progress=False)
    native = both.native(1)
    assert native["area"].to_list() == both.table(1)["area"].to_list()
    assert native["price"].to_list() == both.table(1)["price"].to_list()
    assert np.mean(native["area"].to_numpy() == table["area"].to_numpy()) < 0.5


def test_weights_of_every_step_are_withheld_and_types_tell_nothing(table, tmp_path):
    lonely = (np.arange(80) == 79).astype(int)
    table = table.assign(area=table["area"].astype(float), mine=lonely, others=lonely[::-1])
    fits = []
    for formula, column in ((AREA, "mine"), (PRICE, "others")):
        problem = ds.prepare(table, formula, coords=COORDS, publish=["tax"])
        weights = ds.own_weights(problem, column)
        fits.append(ds.fit(problem, weights=weights, phi=3.0, seed=1, **SHORT))
    first = ds.synthesise(fits[0], 3, seed=3, accept_failed=True, progress=False)
    both = ds.synthesise(fits[1], 3, seed=4, given=first, accept_failed=True, progress=False)
    public = read_release(both.write(tmp_path / "out", report=False))
    assert set(public.metadata["columns"]) == {"east", "north", "x", "area", "price", "tax"}
    assert public.metadata["columns"]["area"] == "int64"
    fit = ds.fit(prepared(table, "mine ~ x"), seed=1, **SHORT)
    with pytest.raises(InputError, match="holds the weights of a step"):
        ds.synthesise(fit, 3, given=first, accept_failed=True, progress=False)


def test_measures_that_take_the_real_covariates_refuse_a_chain(chain):
    asks = (
        lambda: ds.assess(chain),
        lambda: attack(chain),
        lambda: weak_attack(chain),
        lambda: identification(chain),
        lambda: pmse(chain),
        lambda: spatial_regression(chain),
        lambda: compare_morans_i(chain),
    )
    for ask in asks:
        with pytest.raises(InputError, match="several synthetic columns"):
            ask()


def test_imputations_and_a_chain_exclude_each_other(fits, area):
    with pytest.raises(InputError, match="a chain can't have"):
        ds.synthesise(fits[1], 20, given=area, imputations=2)


def test_the_public_readme_says_what_each_column_was_drawn_given(table, area, tmp_path):
    by_itself = ds.fit(prepared(table, "log(price) ~ x"), seed=1, **SHORT)
    release = ds.synthesise(by_itself, 20, seed=2, given=area, accept_failed=True, progress=False)
    text = (release.write(tmp_path / "out", report=False) / "public" / "README.md").read_text()
    assert "`price` was drawn by itself." in text


def test_every_model_draws_at_another_design(table, area):
    """At X + 1 in one column a copy of the same stream moves by that coefficient."""
    rooms = np.random.default_rng(5).poisson(np.exp(1.0 + 0.3 * table["x"]))
    table = table.assign(rooms=rooms, kind=np.arange(80) % 2)
    short = {"chains": 2, "samples": 100, "seed": 1, "engine": "embedded", "progress": False}
    price = prepared(table, "log(price) ~ x")
    fits = (
        ds.fit(price, warmup=200, **short),
        fit_adaptive(price, warmup=200, **short),
        fit_bracketed(price, [10000], warmup=200, **short),
        fit_multivariate(price, "kind", phi=3.0, warmup=200, **short),
        fit_counts(prepared(table, "rooms ~ x"), "poisson", phi=3.0, **short),
    )
    for fit in fits:
        law = fit.predictive()
        X = np.array(fit.problem.X)
        X[:, 1] += 1.0
        here = law.draw(0, 5, np.random.default_rng(1))
        there = law.with_design(X).draw(0, 5, np.random.default_rng(1))
        assert not np.array_equal(here, there), type(fit).__name__
        if fit.outcome == "Gaussian":
            moved = np.log(there / here)
            assert np.allclose(moved, fit.draws["beta"][0, 5, 1], atol=ROUNDING)


def test_tables_hold_every_synthetic_column_and_the_rest_as_it_was(chain, area, table):
    copy = chain.table(7)
    assert np.array_equal(copy["area"], area.values[7])
    assert np.array_equal(copy["price"], chain.values[7])
    pd.testing.assert_frame_equal(copy[["east", "north", "x"]], table[["east", "north", "x"]])
    assert list(copy.columns) == list(table.columns)


def test_the_release_is_of_both_columns(chain, area, tmp_path, table):
    folder = chain.write(tmp_path / "out")
    public = read_release(folder)
    assert public.synthetic_columns == ("area", "price")
    assert public.synthetic_column == "price"
    for number, copy in enumerate(public.copies):
        assert np.array_equal(copy["area"], area.values[number])
        assert np.array_equal(copy["price"], chain.values[number])
    formulas = [step["model"]["formula"] for step in public.metadata["chain"]]
    assert formulas == [AREA, PRICE]
    secret = folder / "confidential"
    for place in (secret, secret / "step_1"):
        assert place.stat().st_mode & 0o777 == 0o700
        assert {p.stat().st_mode & 0o777 for p in place.iterdir() if p.is_file()} == {0o600}
        assert (place / "report.html").is_file()
    summary = json.loads((secret / "summary.json").read_text())
    assert summary["chain"]["columns"] == ["area", "price"]
    risks = pd.read_csv(secret / "joint_risks.csv", index_col=0)
    near = np.abs(area.values - table["area"].to_numpy()) <= 0.1 * table["area"].to_numpy()
    near &= np.abs(chain.values - table["price"].to_numpy()) <= 0.1 * table["price"].to_numpy()
    assert np.allclose(risks["all"], near.mean(axis=0))
    assert np.allclose(joint_disclosure(chain)["all"], near.mean(axis=0))
    text = (folder / "public" / "README.md").read_text()
    assert "`area` and `price`" in text
    assert (
        "<code>area</code>, then <code>price</code>"
        in (folder / "public" / "factsheet.html").read_text()
    )


def test_conditions_of_every_step_are_those_of_the_release(chain):
    found = ds.conditions.conditions(chain)
    assert {entry["fit"] for entry in found} >= {"step 1, restricted", "step 2, restricted"}
    assert {"guessable-seed"} <= {entry["condition"] for entry in found}


def test_the_copies_are_the_same_bytes_for_any_number_of_workers(fits, area, chain):
    again = ds.synthesise(fits[1], 20, seed=6, given=area, workers=2, progress=False)
    assert np.array_equal(again.values, chain.values)


def test_three_columns_make_a_chain(fits, area, chain, table):
    third = fitted(prepared(table, "log(tax) ~ log(price)"), 10)
    last = ds.synthesise(third, 20, seed=1, given=chain, progress=False)
    assert [step.problem.response for step in last.steps] == ["area", "price", "tax"]
    copy = last.table(0)
    assert np.array_equal(copy["area"], area.values[0])
    assert np.array_equal(copy["tax"], last.values[0])


def before(table, formula):
    return [prepared(table, formula)]


@pytest.mark.parametrize(
    ("first", "last", "match"),
    [
        ("log(area) ~ log(price)", PRICE, "step 1.*'price', which is synthesised only after"),
        (PRICE, PRICE, "synthetic already, by step 1"),
        ("rooms ~ x", "log(price) ~ C(rooms)", "as a category"),
        ("rooms ~ x", "log(price) ~ C(rooms) + rooms:x", "as a category"),
        ("east ~ x", "log(price) ~ x", "coordinate"),
    ],
)
def test_steps_that_make_no_chain_are_refused(table, first, last, match):
    table = table.assign(rooms=np.arange(80) % 4)
    with pytest.raises(InputError, match=match):
        check_chain(before(table, first), prepared(table, last))


def test_steps_of_different_tables_are_refused(table):
    other = table.assign(x=table["x"] + 1)
    with pytest.raises(InputError, match="another table"):
        check_chain(before(table, AREA), prepared(other, PRICE))


def test_another_number_of_copies_is_refused(fits, area):
    with pytest.raises(InputError, match="has 20 copies"):
        ds.synthesise(fits[1], 10, given=area)


def test_a_synthetic_covariate_out_of_range_is_an_error_without_its_values(table):
    problem = prepared(table, PRICE)
    with pytest.raises(TableError, match=r"Term 'scale\(log\(area\)\)'.*1 row \(position 3"):
        problem.design.X_of(table.assign(area=np.where(np.arange(80) == 3, 0, table["area"])))


JOB = """
table = "homes.csv"
coords = ["east", "north"]
out = "release"
copies = 6
engine = "embedded"
publish = ["tax"]
seed = 1329227995784915872903807060280344576
adapt_delta = 0.99

[[steps]]
formula = "log(area) ~ x"
threshold = 0.15

[[steps]]
formula = "log(price) ~ scale(log(area))"
threshold = 0.15
gamma = 4.0
"""


def run(folder, text, table, **how):
    table.to_csv(folder / "homes.csv", index=False)
    run_chain(tomllib.loads(text), folder / "job.toml", Run(**how))


def test_a_job_describes_a_chain(tmp_path, table, capsys):
    run(tmp_path, JOB, table)
    public = read_release(tmp_path / "release")
    assert public.synthetic_columns == ("area", "price")
    assert [step["model"]["effect"] for step in public.metadata["chain"]] == ["w", "w*"]
    said = capsys.readouterr().out
    assert "Step 1, area" in said
    assert "Step 2, price" in said
    assert "Published as collected: east, north, x, tax" in said


def test_a_dry_run_checks_the_chain_and_writes_nothing(tmp_path, table, capsys):
    run(tmp_path, JOB, table, dry_run=True)
    assert not (tmp_path / "release").exists()
    assert "log(price) ~ scale(log(area)) (gaussian)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('"log(area) ~ x"', '"log(area) ~ price"', "step 2: step 1 of the chain.*only after"),
        ("gamma = 4.0", "gamma = -1.0", "step 2: gamma"),
        ("gamma = 4.0", 'outcome = "weibull"', "step 2: outcome must be one of gaussian, poisson"),
        ("gamma = 4.0", "alpha = 4.0", "step 2: job.toml has the key 'alpha'"),
        ("copies = 6", "copys = 6", "the key 'copys'.*Did you mean 'copies'"),
        ("copies = 6", "threshold = 6.0", "the key 'threshold'"),
        ("[[steps]]", "[steps]", "steps.*tables"),
    ],
)
def test_jobs_that_make_no_chain_are_refused_before_any_fit(tmp_path, table, old, new, match):
    text = JOB.replace(old, new)
    if new == "[steps]":
        text = JOB.split("[[steps]]")[0] + "[steps]\nformula = 'log(area) ~ x'\n"
    with pytest.raises(InputError, match=match):
        run(tmp_path, text, table)
    assert not (tmp_path / "release").exists()


MIXED = """
table = "homes.csv"
coords = ["east", "north"]
out = "release"
copies = 4
samples = 300
accept_failed = true
engine = "embedded"
no_report = true
seed = 1329227995784915872903807060280344576

[[steps]]
formula = "rooms ~ x"
outcome = "poisson"
threshold = 0.15

[[steps]]
formula = "log(price) ~ rooms"
outcome = "bracketed"
cuts = [10000]
threshold = 0.15
"""


def test_a_count_keeps_its_own_warm_up_unless_another_is_asked_for(table, monkeypatch):
    monkeypatch.setattr("dsstan.copies.step_models.fit_counts", lambda *_, **how: how)
    count = StepModel(outcome="poisson")
    usual = count.fit_of(table, ReleaseOptions())()
    assert {"warmup", "samples"}.isdisjoint(usual)
    asked = count.fit_of(table, ReleaseOptions(warmup=60, samples=70))()
    assert (asked["warmup"], asked["samples"]) == (60, 70)


@pytest.fixture(scope="module")
def with_rooms(table):
    rooms = np.random.default_rng(5).poisson(np.exp(1.0 + 0.3 * table["x"]))
    return table.drop(columns=["area", "tax"]).assign(rooms=rooms)


def test_a_chain_of_a_count_and_a_bracketed_price(tmp_path, with_rooms):
    run(tmp_path, MIXED, with_rooms)
    public = read_release(tmp_path / "release")
    laws = [step["model"]["outcome"] for step in public.metadata["chain"]]
    assert laws[0] == "Poisson, log link"
    assert "bracket" in laws[1]
    dear = with_rooms["price"] >= 10000
    assert 0 < dear.sum() < len(dear)
    for copy in public.copies:
        assert copy["rooms"].dtype == np.int64
        assert np.array_equal(copy["price"] >= 10000, dear)
    assert any(not np.array_equal(copy["rooms"], with_rooms["rooms"]) for copy in public.copies)
    text = (tmp_path / "release" / "public" / "README.md").read_text()
    assert "Poisson" in text
    assert "## Brackets" in text


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (
            'outcome = "poisson"',
            'outcome = "poisson"\noffset = "price"',
            "synthetic column 'price'",
        ),
        ('outcome = "poisson"', 'outcome = "bernoulli"', "step 1: "),
        ('"rooms ~ x"', '"x ~ 1"', "step 1: "),
        ("cuts = [10000]", "cuts = [20000, 10000]", "step 2: cuts must ascend"),
        ("cuts = [10000]", "cuts = 10000", "a list of numbers"),
        ("copies = 4", 'copies = 4\nmissing = "draw"', "draws no gap"),
        ("copies = 4", "copies = 4\nthreshold = 0.2", "belongs into a step"),
        ("cuts = [10000]", "", "step 2: the outcome 'bracketed' needs the key 'cuts'"),
        ("cuts = [10000]", "cuts = [10000]\ngroups = 'x'", "step 2: the key 'groups' belongs to"),
        ('"bracketed"\ncuts = [10000]', '"grouped"\ngroups = "rooms"', "synthetic column 'rooms'"),
        ('outcome = "poisson"', 'outcome = "poisson"\nprotection = "cut"', "step 1: a count"),
    ],
)
def test_a_model_that_a_column_can_t_have_is_refused_before_any_fit(
    tmp_path, with_rooms, old, new, match
):
    with pytest.raises(InputError, match=match):
        run(tmp_path, MIXED.replace(old, new), with_rooms)
    assert not (tmp_path / "release").exists()
