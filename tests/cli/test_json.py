"""What synthesise, run, compare and demo print: one screen, all of it, or one JSON document."""

from __future__ import annotations

import json
import shutil

import jsonschema
import pandas as pd
import pytest
from test_command_docs import quoted, section
from test_command_line import MODEL, QUICK, run
from test_secrets import environment as confined
from test_secrets import job, needles, place, planted_table  # noqa: F401

from conftest import ROOT, small_table
from dsstan.cli.screen_lines import LINES, WIDTH
from dsstan.risk.placing import placed_within


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("table") / "homes.csv"
    table = small_table(30, seed=9, shared=4)
    for number in range(40):
        table[f"another_column_{number}"] = table["x"].round(1)
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def short(file, tmp_path_factory):
    """A release with the default summary, and a floor."""
    out = tmp_path_factory.mktemp("short") / "out"
    result = run(
        *("synthesise", file, *MODEL, *QUICK, "--copies", "3", "--seed", "77", "--accept-failed"),
        *("--floor", "1.2", "--accept-below-floor", "--reason", "a test", "--out", out),
    )
    assert result.returncode == 0, result.stderr
    summary = json.loads((out / "confidential" / "summary.json").read_text())
    return result, out, summary


@pytest.fixture(scope="module")
def in_json(file, tmp_path_factory):
    """The same release in JSON, from a job."""
    folder = tmp_path_factory.mktemp("json")
    shutil.copy(file, folder / "homes.csv")
    (folder / "job.toml").write_text(
        'table = "homes.csv"\nformula = "log(value) ~ x"\ncoords = ["east", "north"]\n'
        'out = "out"\nthreshold = 0.15\ncopies = 3\nseed = 77\nchains = 2\nwarmup = 300\n'
        'samples = 500\nengine = "embedded"\naccept_failed = true\n'
    )
    result = run("run", folder / "job.toml", "--json")
    assert result.returncode == 0, result.stderr
    return result, folder / "out"


def on_page(found):
    """Whether the page names every key of a document and of its paths."""
    return {*found, *found.get("paths", ())} <= quoted(section("JSON"))


# The short summary


def test_the_summary_fits_one_screen(short):
    result, out, _ = short
    lines = result.stdout.splitlines()
    assert len(lines) <= LINES == 20
    assert WIDTH == 80
    long = [line for line in lines if len(line) > WIDTH and str(out) not in line]
    assert [line for line in long if not line.startswith("Ledger, ")] == []  # its path is long


def test_the_summary_says_verdict_flags_shares_sds_utility_and_paths(short):
    result, out, summary = short
    fit = {"ok": "ok", "warned": "warnings", "failed": "FAILED"}[summary["fit_verdict"]]
    lines = result.stdout.splitlines()
    assert lines[0].startswith(f"FIT: {fit}")
    assert lines[1].startswith("DISCLOSURE: MISSED, accepted: ")
    # A miss that was accepted with a reason; a failed fit stands against publishing by itself.
    said = "Do not publish as it is" if fit == "FAILED" else "Publish only with a reason"
    assert lines[2] == f"{said}; accepted: a test"
    assert summary["accepted_below_floor"] == "a test"
    for text in (
        f"Flagged: {summary['flagged']} of 30 (no neighbour within 0.15",
        "Utility: regression intervals overlap ",
        f"{summary['attacker']['floor']['records_below']} of 30 records are below the floor of 1.2",
        "No release meets the floor: ",
        f'dsstan publish {out} --to DIR --accept "REASON"',
        str(out / "confidential" / "report.html"),
        "(40 columns)",
    ):
        assert text in result.stdout, text
    for group in ("flagged", "unflagged"):
        [line] = [x for x in lines if x.startswith(f"places the weakest {group} record within")]
        for stage in summary["placing"][group].values():
            assert placed_within(stage["weakest_within"]) in line


def test_a_failed_verdict_names_its_conditions(short):
    result, _, summary = short
    named = {c["condition"] for c in summary["verdict"]["conditions"]}
    assert named
    assert {name for name in named if name not in result.stdout} == set()


# JSON


def test_a_release_in_json_is_its_summary_and_its_paths(in_json):
    result, out = in_json
    found = json.loads(result.stdout)
    assert on_page(found)
    assert found["summary"] == json.loads((out / "confidential" / "summary.json").read_text())
    schema = json.loads((ROOT / "docs" / "summary.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(found["summary"])
    assert (found["command"], found["confidential"], found["dry_run"]) == (
        "synthesise",
        True,
        False,
    )
    assert found["paths"] == {
        "release": str(out),
        "public": str(out / "public"),
        "confidential": str(out / "confidential"),
        "report": str(out / "confidential" / "report.html"),
    }
    assert found["published_as_collected"][:3] == ["east", "north", "x"]


def test_a_job_and_the_same_options_give_the_same_copies(in_json, short):
    for name in ("copy_001.csv", "copy_003.csv"):
        mine, theirs = ((out / "public" / name).read_bytes() for out in (in_json[1], short[1]))
        assert mine == theirs


def test_a_comparison_in_json_has_the_rows_of_its_table(file, tmp_path):
    out = tmp_path / "grid"
    result = run(
        *("compare", file, *MODEL, *QUICK, "--protection", "cut", "--copies", "3", "--seed", "5"),
        *("--floor", "0.1", "--json", "--out", out),
    )
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert on_page(found)
    table = pd.read_csv(out / "frontier.csv")
    assert [row["setting"] for row in found["settings"]] == list(table["setting"])
    assert [row["sd_all"] for row in found["settings"]] == list(table["sd_all"])
    assert found["settings"][0]["threshold"] is None
    assert any(row["best"] for row in found["settings"])
    assert (found["command"], found["confidential"], found["floor"]) == ("compare", True, 0.1)
    assert found["paths"]["picture"] == str(out / "frontier.png")


def test_the_examples_in_json_have_a_summary_each(tmp_path):
    out = tmp_path / "demo"
    result = run("demo", "--copies", "5", "--json", "--engine", "embedded", "--out", out)
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert on_page(found)
    [(name, example)] = found["examples"].items()
    assert (name, found["left_out"]) == ("simulated", {})
    assert example["summary"]["copies"] == 5
    assert len(example["paths"]["pictures"]) == 5


# Nothing of the data in what is printed and logged


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (["--log-level", "debug"], ["--json"]),
        (["--debug", "--log-level", "debug"], ["--verbose"]),
        (["--log-level", "debug"], ["--dry-run"]),
        (["--log-level", "debug"], ["--dry-run", "--json"]),
    ],
)
def test_no_planted_value_is_in_what_is_printed_or_logged(place, before, after):  # noqa: F811
    import subprocess
    import sys

    result = subprocess.run(
        [sys.executable, "-m", "dsstan", *before, "run", str(job(place)), *after],
        capture_output=True,
        cwd=place / "here",
        env=confined(place),
        timeout=300,
    )
    assert result.returncode == 0, result.stderr.decode()
    said = result.stdout + result.stderr
    assert [text for text in needles(planted_table()) if text in said] == []
    assert b"info dsstan: restricted fit: program surface on " in result.stderr
