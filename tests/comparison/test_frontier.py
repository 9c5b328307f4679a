"""The grid of settings: its numbers, its order, what it survives."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import ROOT
from dsstan.analysis.overlap import interval_overlap
from dsstan.cli.comparison_screen import comparison_screen
from dsstan.comparison.frontier import compare
from dsstan.comparison.frontier_result import RISKS, UTILITIES
from dsstan.comparison.scores import ProtectionSetting, Store, _sets, measure
from dsstan.core.errors import InputError
from dsstan.release.pictures.risk_plots import plot_frontier
from dsstan.risk.disclosure import within
from dsstan.risk.intruder.attacker import attack

FAST = {"engine": "embedded", "progress": False, "chains": 2, "warmup": 400, "samples": 400}
GRID = {"distances": (0.1, 0.15), "protections": ("paper", "cut"), "copies": (3, 8)}


@pytest.fixture(scope="module")
def found(small, free):
    return compare(small, start=free, seed=5, draws=30, gammas=(4.0, np.inf), **GRID, **FAST)


def test_it_has_one_row_for_each_setting_and_number_of_copies(found):
    # No protection, and for two distances: paper with two gammas, cut with none of its own.
    assert len(found.table) == 2 * (1 + 2 * 3)
    assert found.table["setting"].nunique() == 7
    assert found.failed == {}
    assert found.computed == 7
    assert not found.table[[*RISKS, *UTILITIES]].isna().any().any()
    assert found.table["setting"].iloc[0] == "no protection"


def test_records_at_risk_are_those_that_any_rule_flags(found, free):
    wide = ds.flag_isolated(free, distance=0.1).flagged
    narrow = ds.flag_isolated(free, distance=0.15).flagged
    assert wide.sum() > narrow.sum()
    np.testing.assert_array_equal(found.at_risk, wide | narrow)


def test_a_row_is_what_the_single_calls_give(found, free, small):
    """No protection: the same numbers by the public functions."""
    rows = found.table[found.table["rule"] == "none"].set_index("copies")
    sd = attack(free, copies=8, draws=30).sd(8, variances="known")
    assert rows.loc[8, "sd_at_risk_known"] == sd[found.at_risk].min()
    assert rows.loc[8, "sd_all"] == sd.min()
    assert rows.loc[8, "sigma_sq"] == free.draws["sigma_sq"].mean()
    cell = measure(free, free, [8], 0.10, 30, 1)
    releases = list(_sets(free, 8, 1))
    assert len(releases) == 10
    truth = small.original()
    shares = [within(r.values, truth, 0.10 * np.abs(truth)) for r in releases]
    np.testing.assert_allclose(cell.shares[0], np.mean(shares, axis=0))
    overlaps, ratios = [], []
    for release in releases:
        kept = ds.utility(release).table
        ends = {s: (t["low"].to_numpy(), t["high"].to_numpy()) for s, t in kept.groupby("source")}
        overlap = interval_overlap(ends["original"], ends["unrestricted"])
        overlaps.append(np.mean(overlap.truncated))
        ratios.append(np.mean(overlap.width_ratio))
    assert cell.overlap[0] == pytest.approx(np.mean(overlaps), rel=1e-12)
    assert cell.overlap_error[0] == pytest.approx(np.std(overlaps, ddof=1) / np.sqrt(10))
    assert cell.width_ratio[0] == pytest.approx(np.mean(ratios), rel=1e-12)


def test_a_difference_within_its_error_counts_as_a_tie(found):
    """The better hidden of two settings of the same utility beats the other."""
    rows = (
        found.table[found.table["copies"] == 8]
        .iloc[:2]
        .assign(sd_all=[0.2, 0.1], overlap=[0.90, 0.91], overlap_error=0.01)
    )
    two = dataclasses.replace(found, table=rows.reset_index(drop=True))
    assert two.best("sd_all")["sd_all"].tolist() == [0.2]
    exact = dataclasses.replace(found, table=two.table.assign(overlap_error=0.0))
    assert exact.best("sd_all")["sd_all"].tolist() == [0.2, 0.1]


def test_cutting_hides_the_flagged_best(found):
    last = found.table[(found.table["copies"] == 8) & (found.table["value"] == 0.1)]
    sd = last.groupby("protection")["sd_at_risk_known"].max()
    assert sd["cut"] > sd["paper"]


def test_numbers_do_not_depend_on_the_rest_of_the_grid_or_on_workers(found, small, free):
    alone = compare(
        small,
        start=free,
        seed=5,
        draws=30,
        distances=(0.15,),
        protections=("cut", "paper"),
        copies=(8, 3),
        workers=3,
        **FAST,
    )
    keys = ["setting", "copies"]
    columns = ["sd_all", "overlap", "surface", "tau_sq"]
    a, b = (t.table.set_index(keys)[columns] for t in (found, alone))
    pd.testing.assert_frame_equal(a.loc[b.index], b, check_exact=True)


def test_a_setting_whose_fit_failed_is_never_among_the_best_and_beats_none(found):
    rows = found.table[found.table["copies"] == 8].iloc[:2]
    rows = rows.assign(sd_all=[0.2, 0.1], overlap=[0.95, 0.90], passed=[False, True])
    two = dataclasses.replace(found, table=rows.reset_index(drop=True))
    assert two.best("sd_all")["sd_all"].tolist() == [0.1]
    assert two.leaving(0.05)["sd_all"].tolist() == [0.1]
    both = dataclasses.replace(two, table=two.table.assign(passed=True))
    assert both.best("sd_all")["sd_all"].tolist() == [0.2]
    assert both.leaving(0.05)["sd_all"].tolist() == [0.2, 0.1]
    assert both.leaving(0.15)["sd_all"].tolist() == [0.2]
    none = dataclasses.replace(two, table=two.table.assign(passed=False))
    assert none.best("sd_all").empty
    assert none.leaving(0.05).empty
    none.plot("sd_all").draw()  # without a line


def test_over_all_numbers_of_copies_fewer_may_beat_more(found):
    rows = found.table[found.table["setting"] == "no protection"].sort_values("copies")
    two = dataclasses.replace(
        found,
        table=rows.assign(sd_all=[0.2, 0.1], overlap=0.9, overlap_error=0.0).reset_index(drop=True),
    )
    assert two.best("sd_all")["copies"].tolist() == [3, 8]
    assert two.best("sd_all", any_copies=True)["copies"].tolist() == [3]


def test_the_best_rows_are_beaten_by_none(found):
    best = found.best("sd_all", "overlap")
    assert 0 < len(best) <= len(found.table)
    for row in best.itertuples():
        rest = found.table[found.table["copies"] == row.copies]
        margin = 2.0 * np.hypot(rest["overlap_error"], row.overlap_error)
        better = (rest["sd_all"] >= row.sd_all) & (rest["overlap"] >= row.overlap - margin)
        strictly = (rest["sd_all"] > row.sd_all) | (rest["overlap"] > row.overlap + margin)
        assert not (better & strictly).any()
    with pytest.raises(InputError, match="risk must be"):
        found.best(risk="beauty")
    with pytest.raises(InputError, match="utility must be"):
        found.best(utility="beauty")


def of_rows(found, sds, overlaps, passed):
    """A comparison with these numbers, a row each."""
    rows = found.table.iloc[: len(sds)].assign(
        sd_all=sds, overlap=overlaps, passed=passed, overlap_error=0.01
    )
    return dataclasses.replace(found, table=rows.reset_index(drop=True))


def test_the_envelope_has_at_every_floor_the_most_useful_setting_that_leaves_it(found):
    rng = np.random.default_rng(1)
    for _ in range(50):
        sds, overlaps = rng.choice(np.linspace(0.1, 0.5, 5), 6), rng.choice([0.8, 0.9, 0.95], 6)
        passed = rng.uniform(size=6) < 0.7
        made = of_rows(found, sds, overlaps, passed)
        for floor in (0.05, 0.2, 0.45, 0.6):
            line = made.envelope(floor)
            good = passed & (sds >= floor)
            assert line.empty == (not good.any())
            assert line["passed"].all()
            assert line["sd_all"].is_monotonic_decreasing
            assert line["overlap"].is_monotonic_increasing
            for least in sds[good]:
                there = line[line["sd_all"] >= least]["overlap"].max()
                assert there == overlaps[good & (sds >= least)].max()
            if good.any():
                assert line["overlap"].iloc[-1] == overlaps[good].max()


def test_a_setting_whose_fit_failed_is_not_on_the_envelope(found):
    made = of_rows(found, [0.5, 0.3, 0.2], [0.99, 0.9, 0.95], [False, True, True])
    assert made.envelope()["sd_all"].tolist() == [0.3, 0.2]
    assert made.envelope(0.25)["sd_all"].tolist() == [0.3]
    assert made.envelope(0.4).empty
    assert "Crosses" in made.plot("sd_all").labels.caption
    assert made.plot("sd_all").labels.caption.count("L = ") == 2


def test_the_screen_neither_stars_nor_advises_a_setting_whose_fit_failed(found):
    made = of_rows(found, [0.5, 0.3, 0.2], [0.99, 0.9, 0.95], [False, True, True])
    named = made.table.assign(setting=["A", "B", "C"], sd_at_risk_known=made.table["sd_all"])
    made = dataclasses.replace(made, table=named)
    for floor, least in ((None, None), ("0.1", 0.1), ("0.4", 0.4)):
        lines = [line.text for line in comparison_screen(made, floor, least)]
        below = lines.index("Fit failed, so not to be trusted:")
        [place] = [i for i, line in enumerate(lines) if line.startswith("A ")]
        assert place > below
        assert not lines[place].startswith("A *")
        advice = " ".join(lines).partition("The least damaging of those")[2]
        assert ": A (L" not in advice
        assert any(line.startswith("B *") for line in lines) is (floor != "0.4")


def test_the_picture_shows_every_row_the_floor_and_the_least_damaging_that_leave_it(found):
    plot = plot_frontier(found, floor=0.1)
    assert len(plot.data) == len(found.table)
    assert set(plot.data["L"]) == {"L = 3", "L = 8"}
    line = found.envelope(0.1)
    assert 0 < len(line) < len(found.table)
    assert plot.data["keeps"].sum() == len(found.leaving(0.1))
    layers = [layer.geom.data for layer in plot.layers]
    drawn = [data for data in layers if isinstance(data, pd.DataFrame)]
    [ring] = [data for data in drawn if len(data) == 1 and "number" in data.columns]
    assert ring["setting"].tolist() == line["setting"].tail(1).tolist()
    [path] = [data for data in drawn if list(data.columns) == ["overlap", "sd_all"]]
    assert path["sd_all"].tolist() == [*line["sd_all"], 0.1]
    assert path["overlap"].tolist() == [*line["overlap"], line["overlap"].iloc[-1]]
    for setting in line["setting"]:
        assert setting in plot.labels.caption
    nobody = plot_frontier(found, floor=1e3)
    # A line about failed fits may follow.
    assert nobody.labels.caption.startswith("No setting leaves every record the floor (dashed)")
    nobody.draw()


@pytest.mark.parametrize("failed", [0, 4])
def test_settings_whose_fit_failed_are_crossed_out_and_no_others(found, failed):
    passed = np.arange(len(found.table)) >= failed
    plot = plot_frontier(dataclasses.replace(found, table=found.table.assign(passed=passed)))
    crossed = [at.geom.data for at in plot.layers if at.geom.aes_params.get("shape") == "x"]
    assert [data["setting"].tolist() for data in crossed] == (
        [found.table["setting"].head(failed).tolist()] if failed else []
    )


@pytest.mark.parametrize("rows", [1, 3])
def test_a_setting_that_nothing_equals_is_drawn_without_a_line_and_without_a_warning(found, rows):
    """plotnine warns of a line through one point, and a panel may hold one."""
    plot = dataclasses.replace(found, table=found.table.head(rows)).plot()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plot.draw()


def test_continuous_weights_may_stand_in_the_grid(small, free):
    out = compare(small, start=free, seed=5, draws=5, continuous=True, copies=(3,), **FAST)
    assert out.table["rule"].tolist() == ["none", "continuous"]
    assert out.table["gamma"].iloc[1] > 0
    assert not out.at_risk.any()
    assert out.table["sd_at_risk_known"].isna().all()
    for look in (out.best, out.plot):
        with pytest.raises(InputError, match="no record is at risk"):
            look()
    assert len(out.best("sd_all")) >= 1


def test_a_setting_that_fails_costs_itself_alone(small, free):
    """Cutting all but the records at shared places, and a gamma that would be negative."""
    few = ds.prepare(
        small.table.assign(group=["b"] * 54 + ["a"] * 6),
        "log(value) ~ group",
        coords=("east", "north"),
    )
    swapped = {"sigma_sq": free.draws["tau_sq"], "tau_sq": free.draws["sigma_sq"]}
    start = dataclasses.replace(free, problem=few, draws={**free.draws, **swapped})
    out = compare(
        few,
        start=start,
        seed=5,
        draws=5,
        distances=(1e-6,),
        protections=("cut", "paper"),
        continuous=True,
        copies=(3,),
        **FAST,
    )
    assert set(out.failed) == {"M = 1e-06, cut", "continuous weights, paper"}
    assert "too few" in out.failed["M = 1e-06, cut"]
    assert "not negative" in out.failed["continuous weights, paper"]
    assert set(out.table["setting"]) == {"no protection", "M = 1e-06, gamma inf, paper"}
    assert "too few" in str(out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"copies": (1,)}, "at least 2"),
        ({"copies": ()}, "copies must be"),
        ({"copies": 20}, "copies must be"),
        ({"copies": (2.5,)}, "whole numbers"),
        ({"workers": 0}, "whole numbers"),
        ({"gammas": (0.0,)}, "gamma 0"),
        ({"gammas": (-1.0,)}, "gamma must be"),
        ({"gammas": ()}, "gammas must be"),
        ({"protections": ("armour",)}, "armour"),
        ({"protections": "paper"}, "protections must be"),
        ({"distances": (0.0,)}, "distances"),
        ({"correlations": (1.5,)}, "correlations"),
    ],
)
def test_arguments_out_of_range_are_refused_before_any_fit(small, arguments, message):
    with pytest.raises(InputError, match=message):
        compare(small, seed=1, **arguments)


def test_a_start_of_another_kind_or_problem_is_refused(small, tiny, free, kept):
    with pytest.raises(InputError, match="unrestricted"):
        compare(small, start=kept)
    with pytest.raises(InputError, match="another problem"):
        compare(tiny, start=free)


# --- The folder ----------------------------------------------------------------------------


def small_grid(small, free, folder, **changes):
    settings = {"seed": 5, "draws": 5, "distances": (0.15,), "copies": (3,), **changes}
    return compare(small, start=free, folder=folder, **settings, **FAST)


def test_a_second_run_reads_what_the_first_kept(small, free, tmp_path):
    first = small_grid(small, free, tmp_path / "kept")
    again = small_grid(small, free, tmp_path / "kept", seed=None)
    assert (first.computed, again.computed) == (2, 0)
    pd.testing.assert_frame_equal(first.table, again.table, check_exact=True)
    more = small_grid(small, free, tmp_path / "kept", protections=("paper", "cut"))
    assert more.computed == 1


def test_the_folder_is_its_owners_alone_and_holds_no_value_of_the_table(small, free, tmp_path):
    folder = tmp_path / "kept"
    small_grid(small, free, folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    text = ""
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600
        text += path.read_text()
    assert not [v for v in small.original() if repr(float(v)) in text]


def test_a_folder_of_another_table_or_seed_is_refused(small, tiny, free, tmp_path):
    small_grid(small, free, tmp_path)
    with pytest.raises(InputError, match="another seed"):
        small_grid(small, free, tmp_path, seed=6)
    with pytest.raises(InputError, match="another table"):
        compare(tiny, folder=tmp_path, seed=5, copies=(3,), **FAST)


def test_a_folder_whose_run_file_is_damaged_is_refused(small, free, tmp_path):
    small_grid(small, free, tmp_path)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(InputError, match=r"run\.json is missing or damaged"):
        small_grid(small, free, tmp_path)


def test_the_same_numbers_on_another_response_scale_are_another_table(small, free, tmp_path):
    small_grid(small, free, tmp_path)
    logged = small.table.assign(value=small.y)
    other = ds.prepare(logged, "value ~ x", coords=("east", "north"))
    np.testing.assert_array_equal(other.y, small.y)
    start = dataclasses.replace(free, problem=other)
    with pytest.raises(InputError, match="another table"):
        small_grid(other, start, tmp_path)


def test_other_priors_of_the_start_are_another_fit(small, free, tmp_path):
    small_grid(small, free, tmp_path)
    start = dataclasses.replace(free, prior_settings=ds.Priors(sigma=3.0))
    with pytest.raises(InputError, match="another unrestricted fit"):
        small_grid(small, start, tmp_path)


def test_a_damaged_file_is_computed_again(small, free, tmp_path):
    first = small_grid(small, free, tmp_path)
    kept = sorted(p for p in tmp_path.glob("*.json") if p.name != "run.json")
    kept[0].write_text(kept[0].read_text()[:100])
    wrong = json.loads(kept[1].read_text())
    wrong["cell"]["sigma_sq"] = 1.0
    kept[1].write_text(json.dumps(wrong))
    again = small_grid(small, free, tmp_path)
    assert again.computed == 2
    pd.testing.assert_frame_equal(first.table, again.table, check_exact=True)


def test_a_folder_that_can_not_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="can't be made"):
        Store(tmp_path / "file" / "kept")


KILLED = """
import sys
sys.path[:0] = ["tests", "tests/comparison"]
import dsstan as ds
from conftest import small_table
from dsstan.comparison.frontier import compare
problem = ds.prepare(small_table(), "log(value) ~ x", coords=("east", "north"))
found = compare(problem, distances=(0.1, 0.15), protections=("paper", "preserving", "cut"),
    copies=(3, 5), seed=5, draws=20, engine="embedded", progress=False, chains=2, warmup=300,
    samples=300, folder=sys.argv[1])
found.table.to_csv(sys.argv[2])
print(found.computed)
"""


def run_killed(folder, out, *, kill_at: int | None = None) -> int:
    """Run the grid in a process; kill it once it has kept so many settings."""
    command = [sys.executable, "-c", KILLED, str(folder), str(out)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        while kill_at is not None and child.poll() is None:
            if len(list(folder.glob("*.json"))) > kill_at:
                os.kill(child.pid, signal.SIGKILL)
                break
            time.sleep(0.02)
        text, _ = child.communicate()
    return int(text) if text.strip() else -1


@pytest.mark.nightly("kills of a comparison")
def test_a_killed_run_goes_on_where_it_was_and_gives_the_same_bytes(tmp_path):
    assert run_killed(tmp_path / "a", tmp_path / "a.csv", kill_at=3) == -1
    left = len(list((tmp_path / "a").glob("*.json")))
    assert 3 < left < 8
    computed = run_killed(tmp_path / "a", tmp_path / "a.csv")
    assert 0 < computed < 5
    assert run_killed(tmp_path / "b", tmp_path / "b.csv") == 7
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()


def test_a_setting_names_itself():
    assert str(ProtectionSetting("none")) == "no protection"
    assert str(ProtectionSetting("distance", 0.01, 4.0, "paper")) == "M = 0.01, gamma 4, paper"
    assert str(ProtectionSetting("correlation", 0.2, np.inf, "cut")) == "c = 0.2, cut"
