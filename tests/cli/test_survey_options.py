"""Survey weights through the command line, on a table as people have one."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from test_command_line import inside  # noqa: F401

from conftest import case_file
from dsstan.release.reading import read_release

BEST = "log(rent) ~ log(area) + log(weight) + weight"
QUICK = ("--engine", "direct", "--copies", "3", "--floor", "1%", "--threshold", "2.3")


def call(formula, *more):
    """A command on the table with weights."""
    table = case_file("weights.csv")
    return ("synthesise", table, "--formula", formula, "--coords", "x", "y", *QUICK, *more)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_dry_run_says_what_to_type_and_is_content_when_it_is_typed(inside, here):  # noqa: F811
    weights = ("--survey-weights", "weight", "--out", "out", "--dry-run")
    first = inside(*call("log(rent) ~ log(area)", *weights))
    assert first.returncode == 0, first.stderr
    assert "does not use the survey weights 'weight'" in first.stdout
    assert f"--formula '{BEST}'" in first.stdout
    assert (
        "80 records stand for 796 members of the population, and weigh as much as 62 "
        in first.stdout
    )
    second = inside(*call(BEST, *weights, "--json"))
    document = json.loads(second.stdout)
    assert not [line for line in document["warnings"] if "survey weights" in line]
    assert document["plan"]["columns"]["weight"]["published"]


def test_a_release_carries_the_weights_and_says_what_they_are(inside, here):  # noqa: F811
    made = inside(*call("log(rent) ~ log(area)", "--survey-weights", "weight", "--out", "out"))
    assert made.returncode == 0, made.stderr
    [line] = [line for line in made.stdout.splitlines() if line.startswith("Utility:")]
    assert line.startswith("Utility: weighted intervals overlap ")
    assert line.endswith("; the formula lacks log(weight) + weight")
    assert len(made.stdout.splitlines()) <= 20
    given = pd.read_csv(case_file("weights.csv"))
    release = read_release(here / "out")
    assert release.survey_weights == "weight"
    for copy in release.copies:
        np.testing.assert_array_equal(copy["weight"], given["weight"])
        assert "zip" not in copy
    summary = json.loads((here / "out" / "confidential" / "summary.json").read_text())
    found = summary["survey_weights"]
    assert (found["column"], found["in_formula"]) == ("weight", False)
    assert found["sum"] == pytest.approx(given["weight"].sum())
    readme = (here / "out" / "public" / "README.md").read_text()
    assert "svydesign(ids = ~1, weights = ~weight)" in readme
    assert "weighted estimates may be biased" in readme
    report = (here / "out" / "confidential" / "report.html").read_text()
    assert "Survey weights outside the formula" in report
    assert "weighted by weight" in report
    shown = inside("inspect", here / "out")
    assert "survey weights in weight" in shown.stdout
    found = json.loads(inside("inspect", here / "out", "--json").stdout)
    assert found["public"]["survey_weights"] == "weight"


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--survey-weights", "wieght"), "Did you mean 'weight'"),
        (("--survey-weights", "rent"), "'rent' is the response"),
        (("--survey-weights", "zip"), "'zip' has dtype"),
    ],
)
def test_weights_that_cannot_be_are_one_error_before_sampling(
    inside,  # noqa: F811
    here,
    more,
    message,
):
    refused = inside(*call(BEST, "--out", "out", *more))
    assert refused.returncode == 2
    assert message in refused.stderr
    assert not (here / "out").exists()


def test_a_weight_that_is_missing_names_its_row(inside, here):  # noqa: F811
    table = pd.read_csv(case_file("weights.csv"), dtype=str)
    table.loc[[4, 7], "weight"] = ""
    table.to_csv("gaps.csv", index=False)
    refused = inside(
        *("synthesise", "gaps.csv", "--formula", "log(rent) ~ log(area)", "--coords", "x", "y"),
        *(*QUICK, "--survey-weights", "weight", "--out", "out"),
    )
    assert refused.returncode == 2
    words = " ".join(refused.stderr.split())
    assert "'weight' are missing in 2 rows (positions 4, 7, counted from 0)" in words


def test_a_new_job_proposes_the_column_and_a_job_takes_it(inside, here):  # noqa: F811
    made = inside(
        *("init", "job.toml", "--table", case_file("weights.csv"), "--formula", BEST),
        *("--coords", "x", "y"),
    )
    assert made.returncode == 0, made.stderr
    text = (here / "job.toml").read_text()
    assert "By its name it may be weight." in " ".join(text.replace("\n#", "").split())
    text = text.replace("# survey_weights =", "survey_weights =")
    (here / "job.toml").write_text(text.replace("# engine = ", 'engine = "direct" # '))
    plan = json.loads(inside("run", "job.toml", "--dry-run", "--json").stdout)["plan"]
    assert plan["survey_weights"].startswith("weight: 80 records")


def test_a_chain_takes_them_above_its_steps_and_never_draws_them(inside, here):  # noqa: F811
    job = f"""table = "{case_file("weights.csv")}"
coords = ["x", "y"]
survey_weights = "weight"
out = "out"
[[steps]]
formula = "log(area) ~ 1"
[[steps]]
formula = "log(rent) ~ log(area) + log(weight)"
"""
    (here / "job.toml").write_text(job)
    document = json.loads(inside("run", "job.toml", "--dry-run", "--json").stdout)
    [said] = [line for line in document["warnings"] if "survey weights" in line]
    assert said.startswith("step 1: ")
    assert 'formula = "log(area) ~ 1 + log(weight) + weight"' in said
    job = job.replace("log(area) ~ 1", "log(weight) ~ 1")
    (here / "job.toml").write_text(job.replace(" + log(weight)", ""))
    refused = inside("run", "job.toml", "--dry-run")
    assert refused.returncode == 2
    assert "'weight' is the response" in refused.stderr
