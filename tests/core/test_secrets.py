"""Planted values are sought in every byte that a run writes, says or shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import cmdstanpy
import numpy as np
import pytest
from faults import children_of
from test_command_line import inside  # noqa: F401
from test_engines import MINI_DATA, MINI_INITS, compiled, mini, private  # noqa: F401
from test_engines import QUICK as QUICK_SAMPLER

from conftest import small_table
from dsstan.copies.protect import stage_seeds
from dsstan.engines import CmdStanEngine

SEED = 271828182845904523536028747135266249775
"""A root seed that can be recognised; as a job gives it, so that no argument shows it."""

SEEDS = {str(seed).encode() for seed in (SEED, *stage_seeds(SEED))}

in_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="looks processes up in /proc"
)


def planted_table():
    """Thirty records, with every response recognisable to seven digits."""
    table = small_table(30, seed=9, shared=4)
    table["value"] = np.round(table["value"] * 1.000123456789, 6)
    return table


def needles(table):
    """What must be nowhere: responses and their logarithms to seven digits, the seed."""
    values = np.concatenate([table["value"], np.log(table["value"])])
    return {f"{v:.12f}"[:9].encode() for v in values} | SEEDS


def holders(wanted, *folders):
    """Files below the folders that hold one of the texts, or one of the doubles."""
    files = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
    return [str(p) for p in files if any(text in p.read_bytes() for text in wanted)]


class Watch:
    """Looks at the arguments and environment of all of a process's children while it runs."""

    def __init__(self, process):
        self.process, self.seen, self.modes = process, b"", set()
        self.thread = threading.Thread(target=self._look)
        self.thread.start()

    def _look(self):
        while self.process.poll() is None:
            pids = [self.process.pid]
            for pid in pids:
                pids += children_of(pid)
                for name in ("cmdline", "environ"):
                    try:
                        self.seen += Path(f"/proc/{pid}/{name}").read_bytes()
                    except OSError:
                        continue
            time.sleep(0.02)


@pytest.fixture
def place(tmp_path):
    """Folders for everything that a process may write to, and a job."""
    for name in ("in", "releases", "tmp", "work", "cache", "home", "here"):
        (tmp_path / name).mkdir()
    planted_table().to_csv(tmp_path / "in" / "in.csv", index=False)
    return tmp_path


def environment(place):
    folders = {"TMPDIR": "tmp", "DSSTAN_CACHE": "cache", "XDG_CACHE_HOME": "cache", "HOME": "home"}
    return {
        **os.environ,
        **{key: str(place / name) for key, name in folders.items()},
        "MPLCONFIGDIR": str(place / "cache"),
        "COLUMNS": "200",
    }


def job(place, **more):
    keys = {
        **{"table": "in.csv", "formula": "log(value) ~ x", "coords": ["east", "north"]},
        **{"out": "../releases/out", "workdir": "../work", "threshold": 0.15, "copies": 3},
        **{"seed": SEED, "engine": "embedded", "chains": 2, "warmup": 300, "samples": 500},
        **{"accept_failed": True, **more},
    }
    path = place / "in" / "job.toml"
    path.write_text("".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items()))
    return path


def run(place, path):
    """The job in a process of its own, watched; its output is kept in files like a log."""
    with open(place / "here" / "stdout", "wb") as out, open(place / "here" / "stderr", "wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-X", "dev", "-m", "dsstan", "run", str(path)],
            stdout=out,
            stderr=err,
            cwd=place / "here",
            env=environment(place),
        )
        watch = Watch(process)
        process.wait(300)
        watch.thread.join()
    return process.returncode, watch.seen


OUTSIDE = ("tmp", "work", "cache", "home", "here")


@in_proc
def test_no_planted_value_is_outside_the_confidential_part(place):
    code, seen = run(place, job(place))
    assert code == 0, (place / "here" / "stderr").read_text()
    wanted = needles(planted_table())
    public = place / "releases" / "out" / "public"
    assert holders(wanted, public, *(place / name for name in OUTSIDE)) == []
    assert not [text for text in wanted if text in seen]
    doubles = {np.float64(v).tobytes() for v in planted_table()["value"]}
    assert holders(doubles, public, *(place / name for name in OUTSIDE)) == []
    # The same search finds the seed where it belongs, and the values in the table.
    confidential = place / "releases" / "out" / "confidential"
    assert holders(SEEDS, confidential)
    assert holders(wanted - SEEDS, place / "in")
    assert list((place / "work").iterdir()) == []
    assert list((place / "tmp").iterdir()) == []


@in_proc
@pytest.mark.parametrize(
    "damage",
    [
        {"warmup": 20, "samples": 20, "accept_failed": False},
        {"formula": "log(value) ~ x + note"},
        {"copies": 100_000},
    ],
)
def test_no_planted_value_is_in_an_error_or_a_log_of_a_run_that_fails(place, damage):
    table = planted_table()
    table["note"] = table["value"].astype(str)
    table.loc[3, "note"] = None
    table.to_csv(place / "in" / "in.csv", index=False)
    code, seen = run(place, job(place, **damage))
    assert code in (2, 3)
    wanted = needles(table)
    assert holders(wanted, *(place / name for name in OUTSIDE), place / "releases") == []
    assert not [text for text in wanted if text in seen]
    assert list((place / "releases").iterdir()) == []


def test_the_working_folder_is_where_it_is_asked_for(inside, place, monkeypatch):  # noqa: F811
    seen = []

    def look(*arguments, **options):
        import tempfile

        seen.append((Path(tempfile.gettempdir()), os.environ["DSSTAN_WORKDIR"]))
        raise ValueError("PLANTED 4321.123456789")

    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", look)
    result = inside("run", job(place))
    assert result.returncode == 1
    [(folder, named)] = seen
    assert Path(named).resolve() == (place / "work").resolve()
    assert folder.parent.resolve() == (place / "work").resolve()
    assert not folder.exists()


def test_an_unforeseen_error_is_told_without_its_text(inside, place, monkeypatch):  # noqa: F811
    def fail(*arguments, **options):
        raise KeyError("PLANTED 4321.123456789")

    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", fail)
    result = inside("run", job(place))
    assert result.returncode == 1
    assert "unforeseen KeyError at test_secrets.py" in result.stderr
    assert "4321" not in result.stderr + result.stdout
    assert "Traceback" not in result.stderr


def test_a_lack_of_memory_is_told_as_such(inside, place, monkeypatch):  # noqa: F811
    def fail(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", fail)
    result = inside("run", job(place))
    assert result.returncode == 1
    assert "memory does not suffice" in result.stderr


# CmdStan's own files


def test_what_a_run_writes_is_for_its_owner_alone(private, mini, monkeypatch):  # noqa: F811
    """Every file in the private folder, those of CmdStan's processes too, once they have run."""
    modes = {}
    right = cmdstanpy.CmdStanModel.sample

    def sample(self, **arguments):
        fit = right(self, **arguments)
        folder = Path(arguments["output_dir"])
        modes.update({p.name: p.stat().st_mode & 0o777 for p in folder.rglob("*")})
        modes["."] = folder.stat().st_mode & 0o777
        return fit

    monkeypatch.setattr(cmdstanpy.CmdStanModel, "sample", sample)
    before = os.umask(0o000)
    try:
        CmdStanEngine().sample(mini, MINI_DATA, settings=QUICK_SAMPLER, seed=1, inits=MINI_INITS)
    finally:
        os.umask(before)
    assert modes.pop(".") == 0o700
    assert any(name.endswith(".csv") for name in modes)
    assert set(modes.values()) == {0o600}


def test_an_evaluation_leaves_nothing_in_the_folder_of_cmdstanpy(private, mini):  # noqa: F811
    CmdStanEngine().log_density(mini, MINI_DATA, [{"mu": 4321.123456789, "sigma": 1.0}])
    assert list(Path(cmdstanpy._TMPDIR).glob("mini*")) == []


def test_a_full_working_folder_gives_an_error_that_says_what_to_do(
    private,  # noqa: F811
    mini,  # noqa: F811
    monkeypatch,
):
    from dsstan.core.errors import EngineError

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("dsstan.engines.cmdstan._write_json", full)
    with pytest.raises(EngineError, match=r"No space left.*DSSTAN_WORKDIR"):
        CmdStanEngine().sample(mini, MINI_DATA, settings=QUICK_SAMPLER, seed=1, inits=MINI_INITS)
    assert list(private.iterdir()) == []


def test_the_needles_are_as_good_as_their_number():
    table = planted_table()
    assert len(needles(table)) == 2 * len(table) + 4
