"""A release stays private until it is published, and what was published is noted."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

import dsstan as ds
from dsstan.core.errors import DisclosureError, InputError, ReleaseError
from dsstan.release.publication import publish as module
from dsstan.release.publication.publish import publications, publish
from dsstan.release.reading import read_release

REASON = "the board agreed"


@pytest.fixture(scope="module")
def copies(kept):
    return ds.synthesise(kept, 3, seed=31)


@pytest.fixture(scope="module")
def written(copies, tmp_path_factory):
    return copies.write(tmp_path_factory.mktemp("written") / "release")


@pytest.fixture
def release(written, tmp_path):
    """A copy of a written release whose verdicts are in its favour, in a folder with a space."""
    (tmp_path / "the office").mkdir()
    return judged(shutil.copytree(written, tmp_path / "the office" / "my release"))


def judged(folder, fit="ok", disclosure="met"):
    """The release with other verdicts."""
    path = folder / "confidential" / "summary.json"
    verdicts = {"fit_verdict": fit, "disclosure_verdict": disclosure, "disclosure_reason": "a test"}
    content = json.loads(path.read_text()) | verdicts
    path.write_text(json.dumps(content))
    return folder


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# What is published, and what is noted


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_the_public_part_is_copied_readable_by_all_whatever_the_umask(release, tmp_path, mask):
    before = os.umask(mask)
    try:
        publish(release, to=tmp_path / "for all")
    finally:
        os.umask(before)
    assert content(tmp_path / "for all") == content(release / "public")
    assert mode(tmp_path / "for all") == 0o755
    assert {mode(path) for path in (tmp_path / "for all").iterdir()} == {0o644}
    assert mode(release) == mode(release / "public") == 0o700
    assert mode(release / "confidential" / "published.json") == 0o600
    assert {path.name for path in tmp_path.iterdir()} == {"the office", "for all"}


def test_who_published_when_and_on_which_verdicts_is_noted_with_a_hash_of_every_file(
    release, tmp_path
):
    import pwd

    done = publish(release, to=tmp_path / "out")
    [noted] = json.loads((release / "confidential" / "published.json").read_text())["publications"]
    hashes = {n: hashlib.sha256(b).hexdigest() for n, b in content(tmp_path / "out").items()}
    assert noted["files"] == hashes
    assert noted["by"] == pwd.getpwuid(os.getuid()).pw_name
    age = datetime.now(UTC) - datetime.fromisoformat(noted["at"])
    assert timedelta(seconds=-1) <= age < timedelta(minutes=5)
    assert (noted["fit_verdict"], noted["disclosure_verdict"]) == ("ok", "met")
    assert (noted["to"], noted["reason"], noted["complete"]) == (str(tmp_path / "out"), None, True)
    assert publications(release) == (done,)


def test_several_publications_of_a_release_are_all_noted(release, tmp_path):
    publish(release, to=tmp_path / "one")
    publish(release, to=tmp_path / "two")
    assert [one.to for one in publications(release)] == [str(tmp_path / n) for n in ("one", "two")]


def test_both_the_release_and_what_was_published_can_be_read(release, tmp_path):
    publish(release, to=tmp_path / "out")
    here, there = read_release(release), read_release(tmp_path / "out")
    assert here.metadata == there.metadata
    for one, other in zip(here.copies, there.copies, strict=True):
        assert one.equals(other)


def test_what_an_analyst_reads_names_no_folder_of_the_release(release, tmp_path):
    publish(release, to=tmp_path / "out")
    for name in ("README.md", "metadata.json", "factsheet.html"):
        text = (tmp_path / "out" / name).read_text()
        for word in ("public/", "confidential/", str(tmp_path)):
            assert word not in text, (name, word)


def test_a_release_publishes_the_folder_it_was_written_to_and_no_other(copies, kept, tmp_path):
    folder = judged(copies.write(tmp_path / "release"))
    other = ds.synthesise(kept, 3, seed=32)
    with pytest.raises(InputError, match="another release than this one"):
        other.publish(folder, to=tmp_path / "out")
    assert copies.publish(folder, to=tmp_path / "out").to == str(tmp_path / "out")


# What is refused


@pytest.mark.parametrize(
    ("fit", "disclosure", "said"),
    [
        ("warned", "met", "its fit has warnings"),
        ("failed", "met", "its fit failed"),
        ("ok", "missed", "it misses its floor"),
        ("ok", "not judged", "its disclosure was not judged"),
        ("failed", "missed", r"its fit failed.* and it misses its floor"),
    ],
)
def test_a_verdict_against_it_is_named_and_needs_a_reason_that_is_kept(
    release, tmp_path, fit, disclosure, said
):
    judged(release, fit, disclosure)
    with pytest.raises(DisclosureError, match=said) as caught:
        publish(release, to=tmp_path / "for all")
    command = f"dsstan publish '{release}' --to '{tmp_path / 'for all'}' --accept"
    assert command in str(caught.value)
    assert not (tmp_path / "for all").exists()
    assert publications(release) == ()
    publish(release, to=tmp_path / "for all", reason=f" {REASON}\n")
    [noted] = publications(release)
    assert (noted.reason, noted.fit_verdict, noted.disclosure_verdict) == (REASON, fit, disclosure)


def test_a_reason_that_says_nothing_is_refused(release, tmp_path):
    with pytest.raises(InputError, match="the reason is empty"):
        publish(judged(release, "warned"), to=tmp_path / "out", reason=" \n")


def change(release):
    path = release / "public" / "copy_002.csv"
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))


def link(release):
    path = release / "public" / "copy_002.csv"
    path.rename(release / "copy")
    path.symlink_to(release / "copy")


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (change, "copy_002.csv was changed since"),
        (link, "copy_002.csv is no plain file"),
        (lambda r: (r / "public" / "copy_003.csv").unlink(), "copy_003.csv is missing from"),
        (lambda r: (r / "public" / "notes.txt").touch(), "notes.txt was not written with"),
        (lambda r: (r / "confidential" / "public.sha256").unlink(), "public.sha256 can't be read"),
    ],
)
def test_files_that_are_not_as_they_were_written_are_not_published(release, tmp_path, tamper, said):
    tamper(release)
    with pytest.raises(ReleaseError, match=said):
        publish(release, to=tmp_path / "out", reason=REASON)
    assert not (tmp_path / "out").exists()
    assert publications(release) == ()
    assert [path.name for path in tmp_path.iterdir()] == ["the office"]


def test_a_release_of_before_the_verdicts_says_what_to_do(release, tmp_path):
    path = release / "confidential" / "summary.json"
    summary = json.loads(path.read_text())
    del summary["fit_verdict"]
    path.write_text(json.dumps(summary))
    with pytest.raises(ReleaseError, match=r"earlier version of dsstan.*make it again"):
        publish(release, to=tmp_path / "out", reason=REASON)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("attacker", 3), ("attacker", ["floor"]), ("verdict", None), ("verdict", {})],
        *[("verdict", {"conditions": 3}), ("verdict", {"conditions": [{}]})],
    ],
)
def test_a_summary_that_was_changed_by_hand_is_named(release, tmp_path, key, value):
    path = judged(release, fit="warned") / "confidential" / "summary.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(InputError, match=r"summary\.json is not as dsstan wrote it: restore it"):
        publish(release, to=tmp_path / "out", reason=REASON)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "found",
    [3, [3], ["to"], [{}], [{"to": "out", "files": 3}], [{"to": 3, "files": {}}], {"to": "out"}],
)
def test_a_note_of_publications_that_was_changed_by_hand_is_named(release, tmp_path, found):
    path = release / "confidential" / "published.json"
    path.write_text(json.dumps({"publications": found}))
    with pytest.raises(InputError, match=r"published\.json does not hold a list of publications"):
        publish(release, to=tmp_path / "out", reason=REASON)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("what", ["file", "empty folder", "link"])
def test_nothing_is_overwritten(release, tmp_path, what):
    target = tmp_path / "out"
    {
        "file": target.touch,
        "empty folder": target.mkdir,
        "link": lambda: target.symlink_to(tmp_path / "nowhere"),
    }[what]()
    with pytest.raises(ReleaseError, match="exists and is not overwritten"):
        publish(release, to=target)
    assert publications(release) == ()


def test_a_place_inside_the_release_is_refused(release):
    with pytest.raises(InputError, match="lies in the release"):
        publish(release, to=release / "out")


@pytest.mark.parametrize("name", ["nowhere", "the office"])
def test_what_is_no_release_is_named(release, tmp_path, name):
    with pytest.raises(InputError, match=r"is no release: one has the folders public and conf"):
        publish(tmp_path / name, to=tmp_path / "out")


# Interruptions, and two at once

PROGRAM = """
import sys, time
from pathlib import Path
from dsstan.release.publication import publish as module
def wait(*arguments):
    print("here", flush=True)
    time.sleep(60)
where = sys.argv[3]
if where == "copying":
    module.copied = wait
elif where == "named":
    module._settle = wait
else:
    Path.rename = wait
module.publish(sys.argv[1], to=sys.argv[2])
"""


@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("where", ["copying", "noted", "named"])
def test_a_process_killed_in_the_middle_leaves_nothing_half_published(
    release, tmp_path, where, kill
):
    out = tmp_path / "open" / "out"
    out.parent.mkdir()
    command = [sys.executable, "-c", PROGRAM, str(release), str(out), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout.readline() == b"here\n"
        child.send_signal(kill)
    assert out.exists() == (where == "named")
    if out.exists():  # whole
        assert content(out) == content(release / "public")
    for left in set(out.parent.iterdir()) - {out}:
        assert left.name.startswith(".out.partial-")
        assert mode(left) == 0o700
    again = tmp_path / "open" / "again" if out.exists() else out
    publish(release, to=again)
    assert content(again) == content(release / "public")
    noted = publications(release)
    there = [path for path in (out, again) if path.exists()]
    assert [one.to for one in noted] == [str(p) for p in dict.fromkeys(there)]
    assert all(one.complete for one in noted)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_what_fails_after_the_note_takes_it_back(release, tmp_path, monkeypatch, error):
    def fail(*arguments):
        raise error

    monkeypatch.setattr(type(tmp_path), "rename", fail)
    with pytest.raises((KeyboardInterrupt, ReleaseError)):
        publish(release, to=tmp_path / "out")
    assert publications(release) == ()
    assert [path.name for path in tmp_path.iterdir()] == ["the office"]


def test_two_processes_at_once_publish_one_folder_once_and_two_twice(release, tmp_path):
    program = "import sys\nfrom dsstan.release.publication.publish import publish\n"
    program += "publish(sys.argv[1], to=sys.argv[2])"
    places = [tmp_path / name for name in ("same", "same", "same", "other")]
    command = [sys.executable, "-c", program, str(release)]
    children = [
        subprocess.Popen([*command, str(place)], stderr=subprocess.PIPE, text=True)
        for place in places
    ]
    said = [child.communicate()[1] for child in children]
    codes = [child.returncode for child in children]
    assert sorted(codes[:3]) == [0, 1, 1], said
    assert codes[3] == 0
    assert all("exists and is not overwritten" in s for s, c in zip(said, codes, strict=True) if c)
    assert sorted(one.to for one in publications(release)) == [str(places[3]), str(places[0])]
    for place in places:
        assert content(place) == content(release / "public")


def test_a_note_that_can_not_be_written_stops_the_publication(release, tmp_path, monkeypatch):
    def fail(*arguments):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(module, "write_private", fail)
    with pytest.raises(ReleaseError, match=r"Read-only file system\. Nothing was published"):
        publish(release, to=tmp_path / "out")
    assert not (tmp_path / "out").exists()
