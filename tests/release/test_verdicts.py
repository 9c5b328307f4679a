"""FIT and DISCLOSURE in words: what each says, and that neither stands for the other."""

from __future__ import annotations

import dataclasses
import json
import re

import numpy as np
import pytest
from placed_tables import home_fit, home_problem, homes

import dsstan as ds
from dsstan.models.checks.conditions import Check
from dsstan.models.checks.verdict import Verdict
from dsstan.models.weights import own_weights
from dsstan.release.conditions import fit_verdict
from dsstan.release.verdicts import FREE, answer, placing_rows, verdict_lines
from dsstan.release.write import write_release
from dsstan.risk.assessment import assess, measured

pytestmark = pytest.mark.filterwarnings("ignore:two copies")


@pytest.fixture(scope="module")
def release(kept):
    """Copies of a fit that met every condition, from a seed that can't be guessed."""
    fine = {
        "fit": dataclasses.replace(
            kept, verdict=Verdict(()), start=dataclasses.replace(kept.start, verdict=Verdict(()))
        ),
        "seed_bits": 128,
    }
    return dataclasses.replace(ds.synthesise(kept, 5, seed=31, progress=False), **fine)


@pytest.fixture(scope="module")
def found(release):
    return assess(release, floor=0.02, exact=0, draws=20, progress=False)


def of_severity(release, severity, count=1):
    """The release as if its fit had not met some conditions."""
    names = ["not-converged", "phi-at-bound", "several-modes", "no-nugget"]
    checks = tuple(
        Check("rhat", 1.3, "below 1.01", severity, "phi", "run more iterations", name)
        for name in names[:count]
    )
    fit = dataclasses.replace(release.fit, verdict=Verdict(checks))
    return dataclasses.replace(release, fit=fit)


def test_a_good_fit_says_nothing_of_disclosure(release, found):
    unjudged = dataclasses.replace(found, asked=None, least_sd=None)
    fit, disclosure = verdict_lines(release, unjudged)
    assert str(fit) == "FIT: ok"
    assert str(disclosure) == "DISCLOSURE: NOT JUDGED: no floor was asked for"
    assert answer((fit, disclosure)) == "Publish only with a reason"


@pytest.mark.parametrize(("flagged", "shown"), [(2, r"\d+% of 2"), (9, r".+% of 9"), (10, r".+%")])
def test_a_share_of_few_records_has_their_number_beside_it(flagged, shown):
    problem = home_problem(homes(60))
    weights = own_weights(problem, np.arange(60) < flagged)
    fit = home_fit(problem, weights=weights, start=home_fit(problem))
    release = ds.synthesise(fit, 3, seed=1, progress=False)
    rows = placing_rows(assess(release, exact=0, draws=20, progress=False))
    near = {row.group: row.cells.values() for row in rows if row.measure == "near"}
    assert all(re.fullmatch(shown, text) for text in near["flagged"])
    assert all(re.fullmatch(r".+%", text) for text in near["unflagged"])


def test_a_floor_kept_by_a_fit_that_failed_is_not_judged(release, found):
    failed = of_severity(release, "failure")
    lines = verdict_lines(failed, dataclasses.replace(found, release=failed))
    assert [line.severity for line in lines] == ["failure", "warning"]
    assert lines[0].word == "FAILED"
    assert lines[1].word == "NOT JUDGED"
    assert lines[1].why == f"a failed fit's numbers keep the floor of {found.asked}"
    assert answer(lines) == "Do not publish as it is"


@pytest.mark.parametrize(
    ("severity", "verdict"), [("failure", "failed"), ("warning", "warned"), (None, "ok")]
)
def test_the_verdict_of_the_fit_is_ok_warned_or_failed(release, severity, verdict):
    assert fit_verdict(of_severity(release, severity) if severity else release) == verdict


def test_both_good_leave_nothing_against_publishing(release, found):
    assert answer(verdict_lines(release, found)) == FREE


def test_a_missed_floor_counts_records_and_shows_who_accepted_it_why(release, found):
    missed = dataclasses.replace(found, least_sd=np.full(60, 1e6))
    lines = verdict_lines(release, missed)
    assert str(lines[1]) == "DISCLOSURE: MISSED: 60 of 60 records are below the floor of 0.02"
    assert answer(lines) == "Do not publish as it is"
    accepted = verdict_lines(release, missed, "an old table")
    assert accepted[1].word == "MISSED, accepted"
    assert accepted[1].more == "Accepted below the floor: an old table"
    assert answer(accepted) == "Publish only with a reason"


def test_a_release_without_an_intruder_is_not_judged_and_its_summary_says_why(release, tmp_path):
    alone = dataclasses.replace(release, fit=dataclasses.replace(release.fit, start=None))
    assert measured(alone).verdict == "not judged"
    folder = write_release(alone, tmp_path / "r", report=False)
    content = json.loads((folder / "confidential" / "summary.json").read_text())
    assert content["disclosure_verdict"] == "not judged"
    assert content["disclosure_reason"] == "no intruder is computed without an unrestricted fit"
    assert content["attacker"] is None
    assert content["placing"]["unflagged"]["restricted"]["placed_near_by_public_files"] >= 0
