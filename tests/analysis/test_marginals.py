"""Copies beside the data: zeros, signs, ends and quantiles of the response's distribution."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import case, small_table
from dsstan.analysis.marginals import CONDITION, Marginals, foreseen_heaps, marginals
from dsstan.cli.release_screen import release_screen
from dsstan.copies.result import Synthesis
from dsstan.models.heaps.fit import fit_heaped
from dsstan.release.conditions import conditions, fit_verdict

QUICK = {"engine": "direct", "progress": False, "seed": 2**100}


def made(table: pd.DataFrame, formula: str, coords: tuple[str, str]) -> Synthesis:
    """Copies from the unrestricted fit."""
    fit = ds.fit(ds.prepare(table, formula, coords=coords), **QUICK)
    return ds.synthesise(fit, 5, seed=2**100, accept_failed=True, progress=False)


@pytest.fixture(scope="module")
def zeros() -> Synthesis:
    """A fifth of the rents are zero, and the model is normal on log1p."""
    return made(case("zeros.csv"), "log1p(rent) ~ log(area)", ("x", "y"))


def warned(found: Marginals) -> set[str]:
    return {check.name for check in found.checks if check.severity == "warning"}


def test_copies_of_a_table_with_many_zeros_are_said_to_be_unlike_it(zeros: Synthesis) -> None:
    found = marginals(zeros)
    assert (found.original.zeros, found.original.most) == (0.2, 882.57)
    assert found.copies.zeros == 0.0
    assert found.copies.most > 5 * found.original.most
    assert {"share of zeros", "share of negative values"} < warned(found)
    named = {c["condition"] for c in conditions(zeros)}
    assert CONDITION in named
    assert fit_verdict(zeros) == "warned"


def test_the_screen_the_report_and_the_summary_have_original_and_copies(
    zeros: Synthesis, tmp_path: Path
) -> None:
    folder = zeros.write(tmp_path / "out")
    summary = json.loads((folder / "confidential" / "summary.json").read_text())
    assert summary["marginals"]["original"]["zeros"] == 0.2
    assert summary["marginals"]["copies"] == marginals(zeros).table().loc["copies"].to_dict()
    assert not {"least", "most"} & set(summary["marginals"]["original"])
    report = (folder / "confidential" / "report.html").read_text()
    assert "rent on its own scale, data beside all copies" in report
    lines = [line.text for line in release_screen(zeros, ds.assess(zeros, progress=False), None)]
    said = " ".join(lines)
    assert "rent, middle 90%: data 0 to 820, copies -" in said
    assert "zeros 20%, 0%" in said
    assert any(CONDITION in line for line in lines)


@pytest.mark.parametrize(("end", "word"), [("cap", "largest"), ("floor", "smallest")])
def test_a_cap_that_copies_do_not_keep_is_said_of_the_release_too(end: str, word: str) -> None:
    table = small_table(60)
    share = 0.85 if end == "cap" else 0.15
    ends = {"upper" if end == "cap" else "lower": float(table["value"].quantile(share))}
    table["value"] = table["value"].clip(**ends)
    coords = ("east", "north")
    problem = ds.prepare(table, "log(value) ~ x", coords=coords)
    assert any(f"are its {word} value" in sentence for sentence in foreseen_heaps(problem))
    said = f"share at the {word} value"
    assert said in warned(marginals(made(table, "log(value) ~ x", coords)))
    own = ds.prepare(table, "log(value) ~ x", coords=coords, heap=end)
    kept = ds.synthesise(
        fit_heaped(own, **QUICK | {"samples": 100}), 5, seed=1, accept_failed=True, progress=False
    )
    assert warned(marginals(kept)) == set()


@pytest.mark.parametrize("seed", range(4))
def test_a_table_of_the_model_has_nothing_to_say(seed: int) -> None:
    release = made(small_table(60, seed=seed), "log(value) ~ x", ("east", "north"))
    assert warned(marginals(release)) == set()


def test_a_response_that_is_skewed_is_found_out_by_its_ends_or_signs() -> None:
    rng = np.random.default_rng(5)
    table = small_table(200).assign(value=np.exp(rng.normal(0.0, 1.5, 200)))
    release = made(table, "value ~ x", ("east", "north"))
    assert "share of negative values" in warned(marginals(release))


def test_gaps_are_no_part_of_either_side() -> None:
    table = case("zeros.csv")
    table.loc[:9, "rent"] = np.nan
    problem = ds.prepare(table, "log1p(rent) ~ 1", coords=("x", "y"), missing="draw")
    fit = ds.fit(problem, **QUICK)
    release = ds.synthesise(fit, 4, imputations=2, seed=2**100, accept_failed=True, progress=False)
    expected = table["rent"].dropna()
    assert marginals(release).original.zeros == np.mean(expected == 0)


def test_zeros_and_caps_are_foreseen_from_the_response_alone() -> None:
    table = case("zeros.csv")
    coords = ("x", "y")
    [said] = foreseen_heaps(ds.prepare(table, "log1p(rent) ~ log(area)", coords=coords))
    assert said.startswith("20% of 'rent' are 0, and a normal law draws none (unlike-the-data)")
    assert said.endswith("give the heap a law of its own with heap=0")
    above = table[table["rent"] > 0].reset_index(drop=True)
    assert foreseen_heaps(ds.prepare(above, "log(rent) ~ log(area)", coords=coords)) == ()
    capped = above.assign(rent=above["rent"].clip(upper=above["rent"].quantile(0.8)))
    [said] = foreseen_heaps(ds.prepare(capped, "log(rent) ~ log(area)", coords=coords))
    assert "'rent' are its largest value, and copies go above it" in said
    assert said.endswith('give the heap a law of its own with heap="cap"')
    assert str(capped["rent"].max()) not in said


def test_a_column_of_few_values_has_heaps_by_nature() -> None:
    table = small_table(40, seed=9)
    few = table.assign(value=1.0 + np.arange(40) % 4)
    assert foreseen_heaps(ds.prepare(few, "value ~ x", coords=("east", "north"))) == ()
