"""Shared fixtures; what the machine lacks is left out, or fails with DSSTAN_REQUIRE_ALL=1."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

import dsstan as ds
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

ROOT = Path(__file__).resolve().parent.parent
REQUIRE_ALL = os.environ.get("DSSTAN_REQUIRE_ALL") == "1"

sys.path.insert(0, str(ROOT / "tests"))
# Tests of one room borrow helpers from those of another.
sys.path += sorted({str(path.parent) for path in (ROOT / "tests").glob("*/test_*.py")})


def _san_francisco_folder() -> str | None:
    """A folder for DSSTAN_DATA: as set, else one beside the checkout."""
    if os.environ.get("DSSTAN_DATA"):
        return os.environ["DSSTAN_DATA"]
    name = "san_francisco/sanfrancisco.home.sales.rda"
    for path in sorted(ROOT.parent.glob(f"*/data/{name}")):
        return str(path.parent.parent)
    return None


_FOLDER = _san_francisco_folder()
if _FOLDER is not None:
    os.environ["DSSTAN_DATA"] = _FOLDER
# Runs note where they work in the user's state folder; not in that of whoever runs the tests.
_STATE = tempfile.TemporaryDirectory(prefix="state-of-tests-")
os.environ["XDG_STATE_HOME"] = _STATE.name
# One BLAS thread a process: the suite runs in parallel, and bytes must not depend on it.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")


def leave_out(reason: str) -> NoReturn:
    """Skip, or fail where every piece is required."""
    if REQUIRE_ALL:
        pytest.fail(f"DSSTAN_REQUIRE_ALL=1, but {reason}")
    pytest.skip(reason)


def pytest_report_header() -> list[str]:
    """Say what this machine has, before anything runs."""
    found = {
        "R": shutil.which("Rscript"),
        "JAGS": shutil.which("jags"),
        "g++": shutil.which("g++"),
        "Chromium": shutil.which("chromium") and shutil.which("chromedriver"),
        "San Francisco file": _FOLDER,
    }
    there = [name for name, place in found.items() if place]
    lacking = [name for name, place in found.items() if not place]
    lines = [f"dsstan: found {', '.join(there) or 'nothing optional'}"]
    if lacking:
        lines.append(f"dsstan: missing {', '.join(lacking)}; the tests that need it are left out")
    return lines


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of the built pages first: they then fall to one worker, and none waits for another.

    Workers begin with one half of the list each and take from one another's end.
    """
    items.sort(key=lambda item: "built" not in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session")
def san_francisco() -> pd.DataFrame:
    """The 214 one-bedroom homes."""
    if _FOLDER is None:
        leave_out("the San Francisco file is missing; set DSSTAN_DATA to the folder that holds it")
    return ds.load_san_francisco()


@pytest.fixture(scope="session")
def rscript() -> str:
    """The Rscript command."""
    found = shutil.which("Rscript")
    if found is None:
        leave_out("Rscript is missing; apt-get install r-base-core")
    return found


@pytest.fixture(scope="session")
def cmdstan_home() -> Iterator[Path]:
    """A CMDSTAN folder: a real CmdStan where there is one, else the stand-in."""
    import cmdstanpy

    before = os.environ.get("CMDSTAN")
    try:
        home = Path(cmdstanpy.cmdstan_path())
    except ValueError:
        if shutil.which("g++") is None or shutil.which("make") is None:
            leave_out("a C++ compiler is missing; apt-get install build-essential")
        from cmdstan_home.build import ensure

        home = ensure()
    os.environ["CMDSTAN"] = str(home)
    try:
        yield home
    finally:
        if before is None:
            os.environ.pop("CMDSTAN", None)
        else:
            os.environ["CMDSTAN"] = before


@pytest.fixture(params=["embedded", "cmdstan"])
def engine(request: pytest.FixtureRequest) -> str:
    """Each engine in turn."""
    if request.param == "cmdstan":
        request.getfixturevalue("cmdstan_home")
    elif ds.fit.__module__ and _no_stanli():
        leave_out("stanli is missing")
    return str(request.param)


def _no_stanli() -> bool:
    from dsstan.engines import EmbeddedEngine

    return EmbeddedEngine.missing() is not None


def small_table(n: int = 60, *, seed: int = 4, shared: int = 6) -> pd.DataFrame:
    """A seeded table of n records in two clusters and a far record, some at one site."""
    rng = np.random.default_rng(seed)
    places = np.vstack(
        [
            rng.normal([0.3, 0.3], 0.12, (n // 2, 2)),
            rng.normal([0.8, 0.7], 0.10, (n - n // 2 - 1, 2)),
            [[1.6, 0.0]],
        ]
    )
    places[:shared] = places[shared : 2 * shared]
    d = np.sqrt(((places[:, None] - places[None]) ** 2).sum(-1))
    cov = 1.5 * np.exp(-4.0 * d) + 0.2 * np.eye(n)
    x = rng.normal(size=n)
    y = 5.0 + 0.7 * x + np.linalg.cholesky(cov) @ rng.normal(size=n)
    return pd.DataFrame(
        {"east": places[:, 0], "north": places[:, 1], "x": x, "value": np.exp(y)},
    )


@pytest.fixture(scope="session")
def small() -> Problem:
    """The small table, prepared."""
    return ds.prepare(small_table(), "log(value) ~ x", coords=("east", "north"), name="small")


@pytest.fixture(scope="session")
def tiny() -> Problem:
    """Thirty records, for models whose cost grows with the cube of their number."""
    table = small_table(30, seed=9, shared=4)
    return ds.prepare(table, "log(value) ~ x", coords=("east", "north"), name="tiny")


@pytest.fixture(scope="session")
def free(small: Problem) -> Fit:
    """An unrestricted fit of the small table."""
    return ds.fit(small, seed=11, engine="embedded", progress=False)


@pytest.fixture(scope="session")
def kept(small: Problem, free: Fit) -> Fit:
    """A restricted fit of it, the isolated records flagged, protection paper."""
    weights = ds.flag_isolated(free, distance=0.15)
    assert weights.n_flagged >= 1
    return ds.fit(small, weights=weights, start=free, seed=12, engine="embedded", progress=False)


@pytest.fixture(scope="module", params=["paper", "preserving", "cut"])
def protected(request: pytest.FixtureRequest, small: Problem, kept: Fit) -> dict[float, Fit]:
    """Short fits by gamma, one set for each protection, the decay held."""
    return {
        gamma: ds.fit(
            small,
            weights=kept.weights,
            gamma=gamma,
            protection=request.param,
            phi=4.0,
            seed=3,
            chains=2,
            warmup=200,
            samples=200,
            engine="embedded",
            progress=False,
        )
        for gamma in (0.0, 3.0, np.inf)
    }


def scalars(fit: Fit) -> dict[str, Any]:
    """Sampled scalars of a fit by name, a held decay left out."""
    return {k: v for k, v in fit.scalars.items() if k != "phi" or fit.phi_held is None}


def tidy_environment() -> dict[str, str]:
    """This environment with the package's commands on the path, and examples in quick mode."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    kept = {k: v for k, v in os.environ.items() if k != "CMDSTAN"}  # a test before may have set it
    return {**kept, "PATH": path, "DSSTAN_QUICK": "1", "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def built(tmp_path_factory, san_francisco) -> Path:
    """The HTML pages, built once for all workers, every warning an error."""
    base = tmp_path_factory.getbasetemp()
    # Each worker of a parallel run has a folder of its own, in one that they share.
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dsstan-docs"
    with FileLock(f"{shared}.lock"):
        if not (shared / "done").exists():
            tree = shared / "tree"
            for name in ("docs", "examples", "tests/parity", "stan"):
                skip = shutil.ignore_patterns("_build", "golden", "*.ipynb", "__pycache__")
                shutil.copytree(ROOT / name, tree / name, ignore=skip)
            for path in ROOT.glob("*.md"):
                shutil.copy(path, tree)
            done = subprocess.run(
                ["sphinx-build", "-W", "--keep-going", "-q", tree / "docs", shared / "html"],
                env=tidy_environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            (shared / "said").write_text(f"{done.returncode}\n{done.stdout}{done.stderr}")
            (shared / "done").touch()
    code, _, said = (shared / "said").read_text().partition("\n")
    assert code == "0", said
    return shared / "html"


@pytest.fixture(scope="session")
def printed(built: Path) -> Callable[[str], str]:
    """What a teaching example prints in quick mode, read off its page; it must warn of nothing."""
    seen: dict[str, str] = {}

    def of(script: str) -> str:
        if script not in seen:
            from bs4 import BeautifulSoup

            page = built / "teach" / f"{Path(script).stem}.html"
            outputs = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
            assert outputs.select("div.cell_output div.stderr") == []
            blocks = outputs.select("div.cell_output div.stream pre")
            seen[script] = "".join(block.get_text() for block in blocks)
        return seen[script]

    return of
