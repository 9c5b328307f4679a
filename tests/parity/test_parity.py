"""R computes again what dsstan computes; ``parity/README.md`` has the table.

The R twins wrote the golden files; where R is found they run again here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from conftest import leave_out
from dsstan.copies.synthesis import synthesise
from dsstan.core.errors import DatasetError
from mc import FALSE_ALARM, z_limit
from parity import make_inputs, table
from parity.cases import GAMMAS, PROTECTIONS, case, restricted_fit
from parity.golden import (
    COUNTS,
    ROOT,
    SAN_FRANCISCO,
    TOPICS,
    Values,
    difference,
    load,
    python_values,
    read,
    run_r,
    san_francisco_file,
)
from parity.mutants import MUTATIONS, Mutation

TIERS = {"exact": 1e-10, "density": 1e-8}
"""Tolerances that need no reason of their own."""

WIDEST = 1e-5
"""No quantity here is compared by chance, so none may have more than this."""

AGAIN = 0.1
"""R against itself: a share of each tolerance, since only the BLAS may differ."""

QUANTITIES = {
    f"{topic}: {q.claim} [{q.case}] {key}": (topic, key)
    for topic in TOPICS
    for key, q in load(topic).quantities.items()
}


@pytest.fixture(scope="session")
def values() -> Mapping[str, Values]:
    """Python's side of every topic."""
    return {topic: python_values(topic) for topic in TOPICS}


def need_data(topic: str) -> None:
    """Leave a San Francisco comparison out where the file is missing."""
    if topic == SAN_FRANCISCO and san_francisco_file() is None:
        leave_out("the San Francisco file is missing; set DSSTAN_DATA to the folder that holds it")


@pytest.mark.parametrize("name", QUANTITIES, ids=list(QUANTITIES))
def test_python_agrees_with_r(name: str, values: Mapping[str, Values]) -> None:
    topic, key = QUANTITIES[name]
    need_data(topic)
    q = load(topic).quantities[key]
    assert difference(values[topic][key](), q.value, q.measure) <= q.tolerance


@pytest.mark.parametrize("topic", TOPICS)
def test_golden_was_written_by_the_script_as_it_is(topic: str) -> None:
    golden = load(topic)
    assert golden.topic == topic
    assert {f"{topic}.R", "common.R"} < set(golden.sha256)
    assert golden.stale == [], "run make parity"


@pytest.mark.parametrize("topic", TOPICS)
def test_no_quantity_is_lost(topic: str, values: Mapping[str, Values]) -> None:
    golden = load(topic)
    assert set(golden.quantities) == set(values[topic])
    assert len(golden.quantities) == COUNTS[topic]


def test_more_than_sixty_quantities_are_compared() -> None:
    assert len(QUANTITIES) == sum(COUNTS.values())
    assert len(QUANTITIES) >= 60


@pytest.mark.parametrize("topic", TOPICS)
def test_tolerances_beyond_their_tier_have_a_reason_of_their_own(topic: str) -> None:
    usual = {
        q.reason
        for other in TOPICS
        for q in load(other).quantities.values()
        if q.tolerance <= TIERS[q.kind]
    }
    for key, q in load(topic).quantities.items():
        assert len(q.reason) > 20, key
        assert 0 < q.tolerance <= WIDEST, key
        assert q.tolerance <= TIERS[q.kind] or q.reason not in usual, key


@pytest.mark.parametrize("name", make_inputs.TOPICS)
def test_inputs_are_those_that_make_inputs_writes(name: str) -> None:
    try:
        fresh = make_inputs.text_of(name)
    except DatasetError as error:
        leave_out(str(error))
    path = make_inputs.INPUTS / f"{name}.json"
    assert path.read_text(encoding="utf-8") == fresh, "run make parity"


@pytest.mark.parametrize("topic", TOPICS)
def test_a_live_run_of_r_agrees_with_the_golden(topic: str, rscript: str, tmp_path: Path) -> None:
    need_data(topic)
    try:
        run_r(rscript, topic, tmp_path / "live.json")
    except RuntimeError as error:
        if "there is no package called" in str(error):
            leave_out(str(error))
        raise
    golden, live = load(topic), read(tmp_path / "live.json")
    assert live.sha256 == golden.sha256
    assert set(live.quantities) == set(golden.quantities)
    for key, q in golden.quantities.items():
        again = live.quantities[key]
        assert replace(again, value=q.value) == q, key
        assert difference(again.value, q.value, q.measure) <= AGAIN * q.tolerance, key


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_drawn_copies_have_the_mean_and_variance_that_gstat_gives(
    protection: str, gamma: str
) -> None:
    c = case("hand")
    copies = 2000
    fit = restricted_fit(c, protection, GAMMAS[gamma], c.off_nodes[0], (4, copies // 4))
    release = synthesise(fit, copies, seed=7, accept_few_draws=True, progress=False)
    golden = load("latent").quantities
    mean = golden[f"copy/mean/{protection}/{gamma}/hand"].value
    variance = golden[f"copy/variance/{protection}/{gamma}/hand"].value
    drawn = release.modelled()
    compared = 2 * mean.size * len(PROTECTIONS) * len(GAMMAS)
    z = (drawn.mean(axis=0) - mean) / np.sqrt(variance / copies)
    assert np.max(np.abs(z)) < z_limit(compared)
    # The sum of squares of normal copies is a chi-square.
    ratio = (copies - 1) * drawn.var(axis=0, ddof=1) / variance
    tail = FALSE_ALARM / (2 * compared)
    assert np.all(ratio > stats.chi2.ppf(tail, copies - 1))
    assert np.all(ratio < stats.chi2.isf(tail, copies - 1))


def test_table_in_the_readme_is_current() -> None:
    written = table.written()
    fresh = [row.claimed for row in table.rows()]
    assert [row[:-1] for row in written] == fresh, "run python tests/parity/table.py"
    for row in written:
        largest, tolerance = row[-1].removeprefix("< "), row[4].split()[0]
        assert float(largest) <= float(tolerance), row


@pytest.mark.parametrize(
    ("ours", "measure", "expected"),
    [
        ([1.0, 2.0], "relative", 0.0),
        ([1.0, 2.2], "relative", 0.1),
        ([1.0, 2.2], "absolute", 0.2),
        ([1.2, 2.0], "scaled", 0.1),
        ([1.0, np.nan], "absolute", np.inf),
        ([1.0, np.inf], "relative", np.inf),
    ],
)
def test_a_difference_is_measured_as_it_says(
    ours: list[float], measure: str, expected: float
) -> None:
    assert difference(ours, np.array([1.0, 2.0]), measure) == pytest.approx(expected)


def test_a_zero_must_be_met_exactly_and_infinity_equals_itself() -> None:
    assert difference([1e-300], np.array([0.0]), "relative") == np.inf
    assert difference([0.0, np.inf], np.array([0.0, np.inf]), "relative") == 0.0


def test_arrays_of_different_lengths_are_refused() -> None:
    with pytest.raises(AssertionError, match="Python has 1"):
        difference([1.0], np.array([1.0, 1.0]), "absolute")
    with pytest.raises(AssertionError):
        difference([], np.array([]), "absolute")


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda m: m.name)
def test_every_deliberate_error_still_finds_its_line(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    assert text.count(mutation.before) == 1
    assert mutation.after != mutation.before
