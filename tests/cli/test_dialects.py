"""Files of another dialect at the command line: advice, job files, runs."""

from __future__ import annotations

import tomllib

import pytest
from test_command_line import inside  # noqa: F401

from conftest import small_table

MODEL = ("--formula", "log(value) ~ x", "--coords", "east", "north")
STEPS = """table = "homes.csv"
coords = ["east", "north"]
out = "out"
{options}
[[steps]]
formula = "log(value) ~ x"
"""


@pytest.fixture
def german(tmp_path, monkeypatch):
    """Semicolons and decimal commas."""
    monkeypatch.chdir(tmp_path)
    small_table(30, seed=9, shared=4).to_csv("homes.csv", index=False, sep=";", decimal=",")
    return tmp_path / "homes.csv"


def test_the_advice_of_a_command_is_what_it_takes(inside, german):  # noqa: F811
    call = ("synthesise", german, *MODEL, "--threshold", "0.15", "--out", "out", "--dry-run")
    refused = inside(*call)
    assert refused.returncode == 2
    assert "semicolons between cells and decimal commas in 'east', 'north', 'x'" in refused.stderr
    assert "--sep ';' --decimal ','" in " ".join(refused.stderr.split())
    ran = inside(*call, "--sep", ";", "--decimal", ",", "--engine", "embedded")
    assert ran.returncode == 0, ran.stderr


def test_a_new_job_says_what_was_found_and_runs(inside, german):  # noqa: F811
    made = inside(
        *("init", "job.toml", "--table", german, "--formula", "log(value) ~ x"),
        *("--coords", "east", "north"),
    )
    assert "Found:      semicolons between cells and decimal commas in" in made.stdout
    text = (german.parent / "job.toml").read_text()
    found = tomllib.loads(text)
    assert (found["sep"], found["decimal"]) == (";", ",")
    assert "thousands" not in found
    text = text.replace("# accept_failed = false", "accept_failed = true")
    (german.parent / "job.toml").write_text(text)
    result = inside("run", "job.toml", "--dry-run")
    assert result.returncode == 0, result.stderr
    (german.parent / "job.toml").write_text(text.replace('sep = ";"\n', ""))
    refused = inside("run", "job.toml", "--dry-run")
    assert refused.returncode == 2
    assert 'sep = ";", decimal = ","' in " ".join(refused.stderr.split())


def test_a_new_job_of_a_plain_file_says_nothing_of_it(inside, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    small_table(30, seed=9, shared=4).to_csv("homes.csv", index=False)
    made = inside("init", "job.toml", "--table", "homes.csv")
    assert "Found" not in made.stdout
    assert "sep" not in tomllib.loads((tmp_path / "job.toml").read_text())


def test_a_job_with_steps_takes_them_above_its_steps(inside, german):  # noqa: F811
    job = german.parent / "job.toml"
    job.write_text(STEPS.format(options=""))
    refused = inside("run", "job.toml", "--dry-run")
    assert 'sep = ";", decimal = ","' in " ".join(refused.stderr.split())
    job.write_text(STEPS.format(options='sep = ";"\ndecimal = ","'))
    ran = inside("run", "job.toml", "--dry-run")
    assert ran.returncode == 0, ran.stderr


def test_options_of_a_text_file_are_refused_for_parquet(inside, tmp_path):  # noqa: F811
    small_table(30, seed=9, shared=4).to_parquet(tmp_path / "homes.parquet")
    result = inside(
        *("synthesise", tmp_path / "homes.parquet", *MODEL, "--out", tmp_path / "o"),
        *("--dry-run", "--sep", ";"),
    )
    assert result.returncode == 2
    assert "is Parquet and not a text file: leave out --sep ';'" in result.stderr
