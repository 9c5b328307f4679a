"""The benchmark by the number of records: its table, its slope, its records. No times."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))

import scale
import scale_data
import scale_page

from dsstan.covariance.vecchia.neighbours import order_places

ROUNDING = 1e-9
"""Two factorisations of one covariance matrix of 150 sites."""

MACHINE = {"machine": "x86_64", "cores": 2, "limit": 60.0}


def done(program: str, n: int, seconds: float, **more: object) -> scale_page.Row:
    """A made-up row of a program that ended."""
    common = {"program": program, "n": n, "status": "done", "seconds": seconds, "mib": 100.0}
    return {**common, "log_phi": 2.5, "log_tau_sq": -1.4, "versions": {program: "1.0"}, **more}


def test_slope_is_the_power_between_ten_thousand_and_a_million() -> None:
    rows = [done("dsstan", n, 3e-4 * n**1.1) for n in (10_000, 100_000, 1_000_000)]
    others = [done("dsstan", 200, 50.0), done("gpboost", 20_000, 1.0)]
    stopped = {"program": "dsstan", "n": 500_000, "status": "stopped", "why": "time"}
    found = scale_page.slope([*rows, *others, stopped])
    assert found == pytest.approx((1.1, 10_000, 1_000_000), abs=ROUNDING)


def test_there_is_no_slope_of_a_single_size() -> None:
    assert scale_page.slope([done("dsstan", 200, 1.0), done("dsstan", 20_000, 3.0)]) is None


def test_the_table_tells_what_became_of_every_row() -> None:
    gone = {"program": "stan", "n": 500, "status": "stopped", "seconds": 60.2, "mib": 90.0}
    rows = [
        MACHINE,
        done("dsstan", 200, 2.0, ess=1000.0, iterations=[1000, 1000]),
        done("gpboost", 200, 0.1),
        {**gone, "why": "time"},
        {**gone, "n": 1000, "why": "memory"},
        {"program": "stan", "n": 2000, "status": "not tried: time"},
        {"program": "numpyro", "n": 200, "status": "not installed", "why": "jax"},
        {"program": "nutpie", "n": 200, "status": "failed", "why": "a | b", "mib": 5.0},
    ]
    lines = [line for line in scale_page.report(rows).splitlines() if line.startswith("| ")]
    assert lines[1:] == [
        "| dsstan | 200 | 2.0 | 4 × (1000 + 1000) | 100 | 1000 | 500 | 2.50 | -1.40 |",
        "| GPBoost, exact | 200 | 0.1 | estimate | 100 | – | – | 2.50 | -1.40 |",
        "| plain Stan program | 500 | stopped after 60 s |  | 90 |  |  |  |  |",
        "| plain Stan program | 1,000 | stopped at 90 MiB |  | 90 |  |  |  |  |",
        "| plain Stan program | 2,000 | not tried: the smaller one took longer than the limit "
        "|  |  |  |  |  |  |",
        "| NumPyro, NUTS | 200 | not installed |  |  |  |  |  |  |",
        "| PyMC with nutpie | 200 | failed: a / b |  | 5 |  |  |  |  |",
    ]
    assert "dsstan 1.0, gpboost 1.0" in scale_page.report(rows)


def test_a_draw_with_all_neighbours_is_the_exact_one() -> None:
    rng = np.random.default_rng(1)
    sites, normals = rng.uniform(size=(150, 2)), rng.normal(size=150)
    order = order_places(sites)
    d = np.linalg.norm(sites[order][:, None] - sites[order][None], axis=-1)
    exact = np.linalg.cholesky(np.exp(-scale_data.PHI * d)) @ normals[order]
    assert scale_data.effect(sites, normals, 149)[order] == pytest.approx(exact, abs=ROUNDING)


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    sleeper = tmp_path / "python"
    sleeper.write_text('#!/bin/sh\nsleep 60 & echo $! > "$(dirname "$0")/child"\nwait\n')
    sleeper.chmod(0o700)
    row = scale.measure("numpyro", 200, tmp_path, str(sleeper), scale.Limits(0.5, np.inf))
    assert (row["status"], row["why"]) == ("stopped", "time")
    child = (tmp_path / "child").read_text().strip()
    end = time.monotonic() + 30.0  # the signal is sent; the process goes when it is next scheduled
    while runs(child) and time.monotonic() < end:
        time.sleep(0.02)
    assert not runs(child)


def runs(pid: str) -> bool:
    """Whether a process is there and not merely waiting for its parent to ask after it."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state.rpartition(")")[2].split()[0] not in "ZX"


def test_a_peer_that_is_not_there_becomes_a_row(tmp_path: Path) -> None:
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho \'{"missing": "jax"}\'\n')
    bare.chmod(0o700)
    row = scale.measure("numpyro", 200, tmp_path, str(bare), scale.Limits(60.0, np.inf))
    assert row == {"program": "numpyro", "n": 200, "status": "not installed", "why": "jax"}
