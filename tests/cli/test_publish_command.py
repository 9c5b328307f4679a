"""``dsstan publish`` and ``dsstan ledger``: exit codes, screens and JSON."""

from __future__ import annotations

import json
import shutil

import pytest
from test_command_line import inside  # noqa: F401
from test_ledger import copies_of, fit_of
from test_publish import judged

import dsstan as ds
from conftest import small_table
from dsstan.release.publication.ledger import VARIABLE
from dsstan.release.write import write_release

SCREEN = 80


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A release with a floor that it meets, judged with a ledger of its own."""
    place = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(place / "ledger"))
        release = copies_of(fit_of(small_table(30, seed=9, shared=4)))
        found = ds.assess(release, floor="2%", exact=0, progress=False)
        folder = write_release(release, place / "release", assessment=found, report=False)
    return judged(folder)


@pytest.fixture
def release(written, tmp_path, monkeypatch):
    """A copy of it in the working folder, with a copy of its ledger."""
    shutil.copytree(written.parent / "ledger", tmp_path / "ledger")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "ledger"))
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(written, tmp_path / "my release")
    path = folder / "confidential" / "ledger.json"
    path.write_text(path.read_text().replace(str(written.parent), str(tmp_path)))
    return folder


def test_a_release_is_published_and_the_screen_says_where_and_why(inside, release):  # noqa: F811
    result = inside("publish", "my release", "--to", "out")
    assert result.returncode == 0, result.stderr
    assert "Verdicts:   fit ok, disclosure met" in result.stdout
    assert "Accepted" not in result.stdout
    assert "Published:  never" not in inside("inspect", "my release").stdout


def test_without_a_reason_a_verdict_ends_with_five_and_says_what_to_type(inside, release):  # noqa: F811
    judged(release, "warned", "not judged")
    result = inside("publish", "my release", "--to", "out")
    assert result.returncode == 5
    assert result.stderr.count("\n") == 1
    assert "its fit has warnings" in result.stderr
    assert "--accept" in result.stderr
    assert f"dsstan publish '{release}'" in result.stderr
    accepted = inside("publish", "my release", "--to", "out", "--accept", "prices are public")
    assert accepted.returncode == 0, accepted.stderr
    assert "Accepted:   prices are public" in accepted.stdout


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda r: (r / "public" / "copy_001.csv").write_text("x"), 4),
        (lambda r: (r.parent / "out").mkdir(), 4),
        (lambda r: shutil.rmtree(r / "public"), 2),
        (lambda r: shutil.rmtree(r.parent / "ledger"), 2),
    ],
)
def test_what_can_not_be_published_has_its_exit_code(inside, release, damage, code):  # noqa: F811
    damage(release)
    result = inside("publish", "my release", "--to", "out")
    assert result.returncode == code
    assert result.stderr.count("\n") == 1
    assert not (release.parent / "out" / "metadata.json").exists()


def test_it_says_which_ledger_is_used_and_how_many_former_releases_it_has(inside, release):  # noqa: F811
    own = release.parent / "ledger"
    said = inside("publish", "my release", "--to", "out").stdout
    assert f"Ledger, 0 former releases of this table: {own}" in said.splitlines()


def test_another_ledger_than_the_one_remembered_is_refused(inside, release, monkeypatch):  # noqa: F811
    monkeypatch.setenv(VARIABLE, str(release.parent / "of another name"))
    result = inside("publish", "my release", "--to", "out")
    assert result.returncode == 2
    assert f"it was at {release.parent / 'ledger'}. Name its place with --ledger" in result.stderr
    assert not (release.parent / "out").exists()


def test_json_holds_the_publication_and_the_ledger(inside, release):  # noqa: F811
    done = json.loads(inside("publish", "my release", "--to", "out", "--json").stdout)
    assert done["confidential"] is True
    assert done["publication"]["to"] == str(release.parent / "out")
    assert done["ledger"] == {"folder": str(release.parent / "ledger"), "former": 0}
    found = json.loads(inside("ledger", "--json").stdout)
    [table] = found["tables"]
    assert table["left"] > 0
    assert table["releases"][0]["copies"] == 4
    assert "responses" not in table["releases"][0]


def test_the_ledger_shows_each_table_in_a_terminal_of_80_columns(inside, release, monkeypatch):  # noqa: F811
    assert "Nothing was published yet" in inside("ledger").stdout
    inside("publish", "my release", "--to", "out")
    monkeypatch.setenv("COLUMNS", str(SCREEN))
    said = inside("ledger", "--ledger", release.parent / "ledger").stdout
    assert "homes, value (30 records)" in said
    assert "4 copies, floor 2%" in said
    assert "more copies like the last would still meet its floor of 2%" in said
    paths = str(release.parent)
    assert all(len(line) <= SCREEN for line in said.splitlines() if paths not in line)
