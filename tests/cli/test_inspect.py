"""``dsstan inspect`` says what a release is, and refuses what is none."""

from __future__ import annotations

import json
import shutil

import pytest
from test_command_line import inside  # noqa: F401

import dsstan as ds
from dsstan.cli.screen_lines import WIDTH
from dsstan.core.errors import DsstanWarning
from dsstan.release.write import write_release
from dsstan.risk.placing import placed_within

SCREEN = 24
"""Lines of a terminal."""


@pytest.fixture(scope="module")
def written(kept, tmp_path_factory):
    """A release of the small table, with a floor that it meets."""
    folder = tmp_path_factory.mktemp("written") / "release"
    release = ds.synthesise(kept, 3, seed=1, accept_failed=True)
    found = ds.assess(release, floor=1e-6, progress=False)
    return write_release(release, folder, assessment=found), found


@pytest.fixture
def release(written, tmp_path):
    """A copy of it, to be damaged; modes as they were."""
    return shutil.copytree(written[0], tmp_path / "release")


def test_a_steward_sees_one_screen_with_verdict_flags_sd_and_floor(inside, release, written):  # noqa: F811
    result = inside("inspect", release)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") <= SCREEN
    summary = json.loads((release / "confidential" / "summary.json").read_text())
    least = written[1].placing().query("stage == 'restricted'")["within"].min()
    for text in (
        "60, 3 copies",
        "log(value) ~ x",
        "Protection:  paper",
        "Reiter (2003)",
        f"Flagged:     {summary['flagged']} of 60 records",
        f"placed within {placed_within(least)} by",
        "Floor:       1e-06, 0 records below it",
        "FIT:         ",
        "DISCLOSURE:  MET",
    ):
        assert text in result.stdout, text
    assert "OPEN TO OTHERS" not in result.stdout
    groups = [summary["placing"][name]["restricted"] for name in ("flagged", "unflagged")]
    within = placed_within(min(group["weakest_within"] for group in groups))
    assert f"Weakest:     placed within {within}" in result.stdout
    lines = result.stdout.splitlines()
    assert [line for line in lines if len(line) > WIDTH and str(release) not in line] == []


def test_a_steward_sees_why_a_release_is_not_met(inside, release):  # noqa: F811
    path = release / "confidential" / "summary.json"
    summary = json.loads(path.read_text())
    summary |= {"disclosure_verdict": "missed", "disclosure_reason": "3 of 60 records are below"}
    path.write_text(json.dumps(summary))
    said = inside("inspect", release).stdout
    assert "DISCLOSURE:  MISSED" in said
    assert "3 of 60 records are below" in said


@pytest.mark.parametrize("part", ["public alone", "named public"])
def test_an_analyst_sees_the_public_part_and_nothing_confidential(inside, release, part):  # noqa: F811
    if part == "public alone":
        shutil.rmtree(release / "confidential")
    folder = release if part == "public alone" else release / "public"
    result = inside("inspect", folder)
    assert result.returncode == 0, result.stderr
    assert "60, 3 copies" in result.stdout
    assert "FIT:" not in result.stdout
    assert "DISCLOSURE:" not in result.stdout
    found = json.loads(inside("inspect", folder, "--json").stdout)
    assert found["confidential"] is False
    assert "steward" not in found


def test_in_json_the_smallest_sd_is_that_of_the_assessment(inside, release, written):  # noqa: F811
    found = json.loads(inside("inspect", release, "--json").stdout)
    assert found["confidential"] is True
    assert found["steward"]["smallest_sd"] == written[1].after.sd(variances="known").min()
    assert found["open_to_others"] == []


def test_what_others_may_read_is_told(inside, release):  # noqa: F811
    (release / "confidential").chmod(0o755)
    (release / "confidential" / "risks.csv").chmod(0o644)
    found = json.loads(inside("inspect", release, "--json").stdout)
    assert found["open_to_others"] == ["confidential (0755)", "confidential/risks.csv (0644)"]
    assert "OPEN TO OTHERS: confidential/risks.csv (0644)" in inside("inspect", release).stdout


def changed(path, **keys):
    path.write_text(json.dumps({**json.loads(path.read_text()), **keys}))


def linked(path):
    path.unlink()
    path.symlink_to("/etc/hostname")


DAMAGE = {
    "no folder": (shutil.rmtree, "no folder"),
    "no copies": (lambda r: (r / "public" / "copy_002.csv").unlink(), "copy_002.csv"),
    "no metadata": (lambda r: (r / "public" / "metadata.json").unlink(), "metadata.json"),
    "no README": (lambda r: (r / "public" / "README.md").unlink(), "README.md"),
    "a linked README": (lambda r: linked(r / "public" / "README.md"), "is a link"),
    "no risks": (lambda r: (r / "confidential" / "risks.csv").unlink(), "risks.csv"),
    "no flags": (lambda r: (r / "confidential" / "flags.csv").unlink(), "flags.csv"),
    "no JSON": (lambda r: (r / "confidential" / "summary.json").write_text("{"), "damaged"),
    "a list": (lambda r: (r / "confidential" / "summary.json").write_text("[]"), "damaged"),
    "lost key": (
        lambda r: changed(r / "confidential" / "summary.json", verdict={}),
        "damaged",
    ),
    "text for a number": (
        lambda r: changed(r / "confidential" / "summary.json", attacker={"floor": {"sd": "x"}}),
        "damaged",
    ),
    "nested too deep": (
        lambda r: (r / "confidential" / "summary.json").write_text("[" * 100_000),
        "damaged",
    ),
    "a publication without a date": (
        lambda r: (r / "confidential" / "published.json").write_text(
            '{"publications": [{"to": "a", "at": null, "by": "b", "files": {}}]}'
        ),
        "published.json",
    ),
    "another's": (
        lambda r: changed(r / "confidential" / "summary.json", copies=4),
        "another release",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_no_whole_release_ends_with_two_and_says_what_is_wrong(inside, release, damage):  # noqa: F811
    harm, said = DAMAGE[damage]
    harm(release)
    result = inside("inspect", release)
    assert (result.returncode, result.stdout) == (2, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_any_other_folder_is_no_release(inside, tmp_path):  # noqa: F811
    result = inside("inspect", tmp_path, "--json")
    assert result.returncode == 2
    assert json.loads(result.stdout)["error"]["type"] == "InputError"


def test_a_release_in_which_nobody_is_flagged_is_shown(kept, tmp_path, inside):  # noqa: F811
    nobody = ds.flag_isolated(kept.start, distance=1e6)
    how = {"start": kept.start, "seed": 3, "engine": "direct", "progress": False}
    with pytest.warns(DsstanWarning, match="no record is flagged"):
        nobody = ds.fit(kept.problem, weights=nobody, **how)
    release = ds.synthesise(nobody, 3, seed=1, accept_failed=True, progress=False)
    write_release(release, tmp_path / "release", report=False)
    result = inside("inspect", tmp_path / "release")
    assert result.returncode == 0, result.stderr
    assert "placed within" in result.stdout
