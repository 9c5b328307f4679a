"""The teaching examples: their form, and what their prose says of the numbers they print."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT, tidy_environment

EXAMPLES = sorted(p.name for p in (ROOT / "examples").glob("[0-9]*.py"))
NUMBER = r"(-?\d+\.?\d*)"
executed = pytest.mark.nightly("the examples are executed as the pages are built")
RHOS = ("0.00", "0.50", "0.90", "0.99")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_opens_with_a_question_and_ends_with_exercises(name):
    text = (ROOT / "examples" / name).read_text(encoding="utf-8")
    cells = re.split(r"^# %%", text, flags=re.MULTILINE)
    assert cells[0] == ""
    assert cells[1].startswith(" [markdown]\n# # ")
    assert "?" in cells[1]
    assert cells[-1].startswith(" [markdown]")
    exercises = cells[-1].split("# ## Exercises\n")[-1]
    assert 3 <= len(re.findall(r"^# \d\. ", exercises, flags=re.MULTILINE)) <= 4


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_exercise_has_its_solution(name):
    lesson, solutions = (
        (ROOT / folder / name).read_text(encoding="utf-8")
        for folder in ("examples", "examples/solutions")
    )
    asked = re.findall(r"^# (\d)\. ", lesson.split("# ## Exercises\n")[-1], flags=re.MULTILINE)
    assert re.findall(r"^# ## (\d)\. ", solutions, flags=re.MULTILINE) == asked


def test_make_notebooks_writes_what_a_notebook_printed(tmp_path):
    """A script that fails stops it."""
    script = tmp_path / "sums.py"
    for code, rc in (("print(6 * 7)", 0), ("raise SystemExit('no')", 2)):
        script.write_text(f"# %%\n{code}\n", encoding="utf-8")
        given = (f"LESSONS={script}", f"NOTEBOOKS={tmp_path}", f"BIN={Path(sys.executable).parent}")
        done = subprocess.run(
            ["make", "--old-file=.venv/.docs", "notebooks", *given],
            cwd=ROOT,
            env=tidy_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == rc, done.stderr
        if rc == 0:
            assert '"42\\n"' in (tmp_path / "sums.ipynb").read_text(encoding="utf-8")


@pytest.mark.nightly("a lesson and its solutions take minutes")
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_solutions_run_and_what_they_say_holds(name, tmp_path, request):
    """Each claim of a solution is an assertion in it."""
    if "load_san_francisco" in (ROOT / "examples" / name).read_text(encoding="utf-8"):
        request.getfixturevalue("san_francisco")
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "solutions" / name)],
        env=tidy_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_copies_of_the_lone_record_are_centred_on_its_truth(printed):
    out = printed("01_the_risk.py")
    truth, mean, low, high = _numbers(
        rf"alone: truth {NUMBER}, mean of \d+ copies {NUMBER}, "
        rf"95% of them from {NUMBER} to {NUMBER}",
        out,
    )
    level = _numbers(rf"x'beta {NUMBER}; expected", out)[0]
    assert low < truth < high
    assert abs(mean - truth) < 0.1 * abs(level - truth)


def test_the_lone_record_is_the_more_exposed_and_a_copy_tells_more_of_it(printed):
    out = printed("01_the_risk.py")
    (alone,) = _numbers(rf"exposure of the record alone: {NUMBER}", out)
    (crowd,) = _numbers(rf"exposure of the record in a crowd: {NUMBER}", out)
    (limit,) = _numbers(rf"sigma_sq / \(sigma_sq \+ tau_sq\), posterior mean: {NUMBER}", out)
    assert crowd < alone
    assert alone == pytest.approx(limit, abs=0.01)
    fell = [_row(out, name)[-1] for name in ("alone", "in a crowd")]
    assert fell[0] < 50 < fell[1]


@executed
def test_as_gamma_grows_the_copies_go_from_the_truth_to_x_beta(printed):
    out = printed("02_differential_smoothing.py")
    (truth,) = _numbers(rf"truth of the lone record {NUMBER}", out)
    rows = {g: _table_row(out, g) for g in ("0", "100", "1e+06", "inf")}
    assert rows["0"]["effect"] == rows["inf"]["effect"] == "w"
    assert rows["100"]["effect"] == rows["1e+06"]["effect"] == "w*"
    gaps = [abs(row["mean"] - truth) for row in rows.values()]
    assert gaps[0] < gaps[1] < gaps[2]
    assert gaps[0] < gaps[3]
    for gamma in ("1e+06", "inf"):
        assert rows[gamma]["alpha"] < 1e-3
    # At a large finite gamma the copies are as narrow as the nugget, at infinity they are not.
    assert rows["1e+06"]["sd"] < 0.5 * rows["inf"]["sd"]
    assert rows["inf"]["x'beta"] < rows["0"]["x'beta"]
    assert rows["inf"]["tau_sq"] > 1.5 * rows["0"]["tau_sq"]


@executed
def test_copies_that_carry_w_overshoot_the_truth_at_a_middling_gamma(printed):
    out = printed("02_differential_smoothing.py")
    smooth, truth = _numbers(rf"gamma 100, w\*: copies centred at {NUMBER}, truth {NUMBER}", out)
    (whole,) = _numbers(rf"gamma 100, w: copies centred at {NUMBER}", out)
    assert whole < truth < smooth


@executed
def test_only_the_protection_paper_moves_the_nugget(printed):
    out = printed("02_differential_smoothing.py")
    none, paper, preserving, cut = (
        float(cell) for cell in re.findall(rf"{NUMBER} \(", _line(out, "nugget tau_sq"))
    )
    assert paper > 1.5 * none
    assert preserving == pytest.approx(none, rel=0.2)
    assert cut == pytest.approx(none, rel=0.2)


@executed
def test_every_protection_lowers_the_share_and_only_cut_stops_the_whole_release(
    printed, san_francisco
):
    out = printed("05_what_the_measure_misses.py")
    rows = {p: _row(out, p, 0) for p in ("none", "paper", "preserving", "cut", "plug")}
    # Share, exact, known, fixed, of others.
    share, _, known, fixed, others = ({p: row[k] for p, row in rows.items()} for k in range(5))
    assert all(share[p] < share["none"] for p in rows if p != "none")
    assert known["none"] < known["paper"] < known["preserving"] < known["cut"]
    assert fixed["plug"] < fixed["paper"] < fixed["preserving"]
    (without,) = _numbers(rf"sd without any copy: {NUMBER}", out)
    assert known["cut"] == fixed["cut"] == without
    assert all(sd < 0.1 for sd in others.values())
    shares = [v for p, v in share.items() if p != "none"]
    assert max(shares) / min(shares) < known["cut"] / known["plug"]


@executed
def test_continuous_weights_leave_the_outlier_less_than_flags_do(printed, san_francisco):
    out = printed("05_what_the_measure_misses.py")
    pairs = _numbers(rf"outlier left with {NUMBER} fixed, {NUMBER} known", out)
    (none, continuous, flagged), known = pairs[::2], pairs[1::2]
    assert continuous < 2.0 * none
    assert flagged > 5.0 * continuous
    assert known[2] > known[1]
    # Known variances take back most of what flags give.
    assert known[2] / known[1] < 0.5 * flagged / continuous


@executed
def test_brackets_keep_the_count_of_dear_homes_and_cost_what_is_said(printed, san_francisco):
    out = printed("09_brackets.py")
    (truth,) = _numbers(rf"homes of a million or more in the original: {NUMBER}", out)
    low, high, _ = _numbers(rf"without brackets: from {NUMBER} to {NUMBER}, median {NUMBER}", out)
    assert low < truth < high
    assert (
        _numbers(rf"with brackets: from {NUMBER} to {NUMBER}, median {NUMBER}", out) == [truth] * 3
    )
    assert "every home in its own bracket in every copy: True" in out
    for pattern, sign in (
        ("near copies, a million or more", 1),
        ("sd left, a million or more", -1),
    ):
        before, after = _numbers(rf"{pattern}: {NUMBER} to {NUMBER}", out)
        assert sign * (after - before) > 0.25 * before
    rows = [
        _numbers(rf"(?m)^ *{n} +\d+ +{NUMBER} +{NUMBER} +{NUMBER} +{NUMBER}$", out)
        for n in (2, 3, 9)
    ]
    assert all(near > bare and left < others for bare, near, others, left in rows)
    assert [row[1] for row in rows] == sorted(row[1] for row in rows)


@executed
def test_a_chain_keeps_the_effect_of_age(printed, san_francisco):
    out = printed("10_age_then_price.py")
    interval = rf"{NUMBER} \({NUMBER}, {NUMBER}\)"
    table, chain = (
        _numbers(rf"{name} +\+?{interval.replace(NUMBER, '[+]?' + NUMBER)}", out)
        for name in ("table", "chain")
    )
    assert chain[1] < table[0] < chain[2]
    shares = {
        name: _numbers(rf"\n{name} +age +{NUMBER}% +price +{NUMBER}% +both +{NUMBER}%", out)
        for name in ("flagged", "unflagged")
    }
    for age, price, both in shares.values():
        assert both <= min(age, price)
    assert shares["flagged"][0] < shares["unflagged"][0]


@executed
def test_more_is_borrowed_the_closer_the_groups_go_together(printed, san_francisco):
    out = printed("11_bedrooms.py")
    sds = [_numbers(rf"correlation {rho}: mean sd of w {NUMBER}", out)[0] for rho in RHOS]
    assert sds == sorted(sds, reverse=True)
    assert sds[-1] < 0.9 * sds[0]
    (all_flats,) = _numbers(rf"from all flats: mean sd of w {NUMBER}", out)
    (two,) = _numbers(rf"from two bedrooms: mean sd of w {NUMBER}", out)
    assert all_flats < two
    every, own = _numbers(rf"kind: {NUMBER} flats flagged", out)
    assert every < own


@executed
def test_secret_addresses_leave_the_lonely_homes_as_they_were_and_keep_the_slope(
    printed, san_francisco
):
    out = printed("12_secret_addresses.py")
    before, _, after, _ = _numbers(rf"lonely homes +{' +'.join([NUMBER] * 4)}", out)
    assert after == pytest.approx(before, abs=0.002)
    before, _, after, _ = _numbers(rf"other homes +{' +'.join([NUMBER] * 4)}", out)
    assert before < after < 0.5
    truth, copies = _numbers(rf"slope of the size: {NUMBER} in the table, {NUMBER} in", out)
    (se,) = _numbers(rf"its standard error in the table: {NUMBER}", out)
    assert abs(copies - truth) < 4 * se
    (inside,) = _numbers(rf"inside the envelope at {NUMBER}% of the distances", out)
    assert inside > 80
    for curve in ("K", "variogram"):
        kept, displaced = _numbers(rf"^{curve} +{NUMBER} +{NUMBER}$", out)
        assert kept < displaced


@executed
def test_adaptive_weights_smooth_everybody_and_inflate_the_nugget(printed):
    out = printed("08_adaptive.py")
    kept = {name: _row_of_two(out, name) for name in ("ratio", "step", "two-stage")}
    assert kept["two-stage"] == [1.0, 0.0]
    others, alone = kept["ratio"]
    assert alone < others < 0.9
    # The step's M moves away from those it would smooth.
    assert kept["step"][1] > 0.2
    nugget = {
        name: _numbers(rf"^ *{re.escape(name)} .*\) +{NUMBER} \(", out)[0]
        for name in ("unrestricted", "ratio", "alpha 0.2")
    }
    assert 2.0 * nugget["unrestricted"] < nugget["ratio"] < nugget["alpha 0.2"]


def _row_of_two(text: str, name: str) -> list[float]:
    """A row of the table of shares kept: others, alone."""
    return _numbers(rf"^{re.escape(name)} +{NUMBER} +{NUMBER}$", text)


def _numbers(pattern: str, text: str) -> list[float]:
    """All numbers that the pattern captures, over all its matches."""
    found = re.findall(pattern, text, flags=re.MULTILINE)
    assert found, f"nothing printed matches {pattern!r}"
    return [float(v) for match in found for v in ([match] if isinstance(match, str) else match)]


def _line(text: str, start: str) -> str:
    """The last printed line that starts so."""
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith(start + " ")]
    assert lines, f"no printed line starts with {start!r}"
    return lines[-1]


def _row(text: str, name: str, which: int = -1) -> list[float]:
    """The leading numbers of a table's row, of several tables of the last."""
    row = re.findall(rf"^ *{re.escape(name)} +((?:-?\d+\.\d+ +){{2,}}-?\d+\S*)", text, re.MULTILINE)
    assert row, f"no row of a table is called {name!r}"
    return [float(v) for v in row[which].split()]


def _table_row(text: str, gamma: str) -> dict[str, float | str]:
    """One row of the table of gammas, by the names in its head."""
    lines = text.splitlines()
    head = next(
        i for i, line in enumerate(lines) if line.split()[:3] == ["gamma", "effect", "alpha"]
    )
    names = lines[head].split()
    row = next(line.split() for line in lines[head + 1 :] if line.split()[0] == gamma)
    return {n: v if n in ("gamma", "effect") else float(v) for n, v in zip(names, row, strict=True)}
