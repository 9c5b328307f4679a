"""The screen of a release: one page of a terminal, whose first five lines answer the officer."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from test_verdicts import found, of_severity, release  # noqa: F401

import dsstan as ds
from dsstan.cli.release_screen import release_screen, verdict_screen
from dsstan.cli.screen_lines import LINES, WIDTH
from dsstan.models.checks.conditions import CONDITIONS, reach_note
from dsstan.release.publication.ledger import ledger_folder
from dsstan.release.verdicts import FREE, placing_rows
from dsstan.risk.assessment import measured
from dsstan.risk.floors import Floor

pytestmark = pytest.mark.filterwarnings("ignore:two copies")

HERE = Path.cwd() / "release"


def texts(release, found, **more):  # noqa: F811
    """The screen of a written release as text."""
    where = {"target": HERE, "page": HERE / "confidential" / "report.html"}
    return [
        line.text for line in release_screen(release, found, ds.utility(release), **where | more)
    ]


def missed(found, sd=1e6):  # noqa: F811
    """The assessment as if it missed its floor by far."""
    return dataclasses.replace(found, asked=Floor(sd=sd), least_sd=np.full(60, sd))


def test_the_first_five_lines_answer_the_officer(release, found):  # noqa: F811
    """Both verdicts, what follows from them, and how near an intruder gets to the weakest."""
    lines = texts(release, found)
    assert lines[0] == "FIT: ok"
    assert lines[1] == "DISCLOSURE: MET: every record keeps the floor of 0.02 by the lower bounds"
    assert lines[2] == FREE
    assert lines[3].split()[-4:] == ["no", "release", "unprotected", "protected"]
    placing = found.placing().query("stage == 'restricted'")
    weakest = placing.loc[placing["within"].idxmin(), "group"]
    assert lines[4].startswith(f"places the weakest {weakest} record within")
    cells = {row.group: row.cells for row in placing_rows(found) if row.measure == "weakest"}
    assert re.split(r" {2,}", lines[4])[-3:] == list(cells[weakest].values())


@pytest.mark.parametrize("conditions", [0, 1, 3, 4])
@pytest.mark.parametrize("severity", ["warning", "failure"])
@pytest.mark.parametrize("judged", ["met", "missed", "accepted", "not judged"])
def test_it_is_one_screen_whatever_the_verdicts(
    release,  # noqa: F811
    found,  # noqa: F811
    conditions,
    severity,
    judged,
):
    made = of_severity(release, severity, conditions) if conditions else release
    if judged in ("missed", "accepted"):
        found = missed(found)
    elif judged == "not judged":
        found = dataclasses.replace(found, asked=None, least_sd=None)
    found = dataclasses.replace(found, release=made)
    accepted = "the owner agreed to it in writing " * 4 if judged == "accepted" else None
    lines = texts(made, found, accepted=accepted)
    assert len(lines) <= LINES
    assert max(map(len, lines)) <= WIDTH
    named = ["not-converged", "phi-at-bound", "several-modes", "no-nugget"][:conditions]
    assert all(any(name in line for line in lines) for name in named)
    free = judged == "met" and not conditions
    assert (lines[2] == FREE) is free
    assert lines[-2] == "To publish: dsstan publish release --to DIR" + (
        "" if free else ' --accept "REASON"'
    )
    assert lines[-1].endswith("release/confidential/report.html")


def test_a_condition_that_is_not_met_is_explained_with_what_to_do(release, found):  # noqa: F811
    said = " ".join(texts(of_severity(release, "warning"), found))
    assert f"not-converged: {CONDITIONS['not-converged']}. To do: run more iterations" in said


def test_an_open_warning_stands_beside_the_answer(release, found):  # noqa: F811
    """Whichever warnings the report has: one by its title, more by their number."""

    class Risen(type(found)):
        rose_most = 0

    risen = Risen(**{f.name: getattr(found, f.name) for f in dataclasses.fields(found) if f.init})
    one = texts(release, risen)[2]
    assert one == f"{FREE}; open warning: Protection raised a risk"
    let = dataclasses.replace(release, fit=release.fit.start)
    assert texts(release, found)[2] == FREE
    assert verdict_screen(let, risen)[2].text == f"{FREE}; 2 warnings are open, see the report"


def test_notes_of_the_fit_are_told_where_there_is_room_and_else_counted(release, found):  # noqa: F811
    phi = np.full((4, 100), 1.0)
    note = reach_note(np.where(np.arange(100) < 30, 1.0, 5.0) * phi, (1.0, 10.0))
    assert note is not None
    noted = dataclasses.replace(release, fit=dataclasses.replace(release.fit, notes=(note,)))
    todo = note.partition(". ")[2]
    assert todo.startswith("A rule by correlation")
    assert f"Note: {todo}" in " ".join(texts(noted, found))
    assert f"Note: {note}" in " ".join(texts(noted, found, target=None))
    lines = texts(noted, found)
    assert len(lines) <= LINES
    many = dataclasses.replace(
        release, fit=dataclasses.replace(release.fit, notes=tuple(f"{note} {k}" for k in range(9)))
    )
    lines = texts(many, found)
    assert "Notes of the fits: 9, see the report" in lines
    assert len(lines) <= LINES


def test_a_missed_floor_is_told_with_what_would_meet_it(release, found):  # noqa: F811
    hopeless = texts(release, missed(found))
    assert "No release meets the floor: 60 records miss it without any copy" in hopeless
    floor = 1.05 * float(found.sd.min())
    one = missed(found, floor)
    assert one.verdict == "missed"
    assert one.hopeless == 0
    [line] = [x for x in texts(release, one) if x.startswith("To meet the floor: ")]
    assert f"{one.largest_release} copies, perhaps more" in line
    assert 'protection = "auto"' in line


def test_what_was_not_written_has_no_step_to_publish(release, found):  # noqa: F811
    lines = texts(release, missed(found), target=None, page=None)
    assert lines[1].startswith("DISCLOSURE: MISSED: 60 of 60 records are below the floor of")
    assert lines[2] == "Do not publish as it is"
    assert [line for line in lines if "dsstan publish" in line] == []
    assert lines[-1] == f"Ledger, nothing was published with it yet: {ledger_folder()}"


def test_the_worst_term_of_the_regression_is_named(release, found):  # noqa: F811
    estimates = ds.utility(release)
    [line] = [x for x in texts(release, found) if x.startswith("Utility: ")]
    assert line.rpartition(", ")[2] in set(estimates.table["term"])


def test_without_an_intruder_the_public_files_are_what_it_shows(release):  # noqa: F811
    alone = dataclasses.replace(release, fit=dataclasses.replace(release.fit, start=None))
    lines = texts(alone, measured(alone))
    assert lines[1].startswith("DISCLOSURE: NOT JUDGED: no intruder is computed")
    assert lines[3].startswith("The public files alone")
    assert len(lines) <= LINES
