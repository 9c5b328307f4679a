"""Shared fixtures; what the machine lacks is left out, or fails with DSSTAN_REQUIRE_ALL=1."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import pandas as pd
import pytest
from filelock import FileLock

import dsstan as ds
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

ROOT = Path(__file__).resolve().parent.parent
REQUIRE_ALL = os.environ.get("DSSTAN_REQUIRE_ALL") == "1"
NIGHTLY = os.environ.get("DSSTAN_NIGHTLY") == "1"

T = TypeVar("T")

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


@pytest.fixture(autouse=True, scope="module")
def _ledger_of_a_module() -> Iterator[None]:
    """What a module's fixtures assess sees no release that another module published."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", tempfile.mkdtemp(dir=_STATE.name))
        yield


@pytest.fixture(autouse=True)
def _own_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test sees no release that another one published."""
    monkeypatch.setenv("XDG_STATE_HOME", tempfile.mkdtemp(dir=_STATE.name))


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
    """Leave what is marked nightly to the night, and put what builds or compiles first.

    Workers begin with one half of the list each and take from one another's end. So one worker
    builds the pages and compiles the programs, and none waits for another.
    """
    for item in items:
        mark = item.get_closest_marker("nightly")
        if mark is not None and not NIGHTLY:
            item.add_marker(pytest.mark.skip(reason=f"make nightly: {mark.args[0]}"))
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    """0 for tests of the pages, 1 for those that compile, 2 for the rest."""
    wanted = getattr(item, "fixturenames", ())
    given = getattr(item, "callspec", None)
    compiles = "cmdstan_home" in wanted or (
        given is not None and "cmdstan" in map(str, given.params.values())
    )
    return 0 if "built" in wanted else 1 if compiles else 2


def case_file(name: str) -> Path:
    """A file with a small table as people have them, of the folder ``cases`` of DSSTAN_DATA."""
    path = Path(_FOLDER or "") / "cases" / name
    if not path.is_file():
        leave_out(f"cases/{name} is missing; set DSSTAN_DATA to the folder that holds it")
    return path


def case(name: str) -> pd.DataFrame:
    """A small table as people have them."""
    return pd.read_csv(case_file(name), dtype={"zip": str})


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
    """Each engine in turn, for log densities and for what costs no long run."""
    return _engine(request)


@pytest.fixture(
    params=[
        "embedded",
        pytest.param("cmdstan", marks=pytest.mark.nightly("statistics on the second engine")),
    ]
)
def sampling_engine(request: pytest.FixtureRequest) -> str:
    """The embedded engine, at night each in turn, for statistics of long runs."""
    return _engine(request)


@pytest.fixture(
    params=[
        "embedded",
        pytest.param(
            "cmdstan", marks=pytest.mark.nightly("a minute's compilation of a program of few users")
        ),
    ]
)
def density_engine(request: pytest.FixtureRequest) -> str:
    """The same for the log density of a program that is compiled for it alone."""
    return _engine(request)


def _engine(request: pytest.FixtureRequest) -> str:
    """The engine that is asked for, if it is here."""
    if request.param == "cmdstan":
        request.getfixturevalue("cmdstan_home")
    elif _no_stanli():
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


def shared_folder(factory: pytest.TempPathFactory) -> Path:
    """The folder that all workers of a run have in common."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[], T]) -> T:
    """The result of ``make``, computed by the first worker that needs it and read by the others."""
    file = shared_folder(factory) / f"{name}.pickle"
    with FileLock(f"{file}.lock"):
        if not file.exists():
            file.write_bytes(pickle.dumps(make()))
    found: T = pickle.loads(file.read_bytes())
    return found


@pytest.fixture(scope="session")
def free(small: Problem, tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """An unrestricted fit of the small table."""
    fit = once(
        tmp_path_factory,
        "free",
        lambda: ds.fit(small, seed=11, engine="embedded", progress=False),
    )
    return replace(fit, problem=small)  # the very object, which a start must share


@pytest.fixture(scope="session")
def kept(small: Problem, free: Fit, tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """A restricted fit of it, the isolated records flagged, protection paper."""
    weights = ds.flag_isolated(free, distance=0.15)
    assert weights.n_flagged >= 1
    asked = {"weights": weights, "start": free, "seed": 12}
    fit = once(
        tmp_path_factory,
        "kept",
        lambda: ds.fit(small, **asked, engine="embedded", progress=False),
    )
    return replace(fit, problem=small, start=free)


@pytest.fixture(scope="module", params=["paper", "preserving", "cut"])
def protected(
    request: pytest.FixtureRequest,
    small: Problem,
    kept: Fit,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[float, Fit]:
    """Short fits by gamma, one set for each protection, the decay held."""
    asked = {"weights": kept.weights, "protection": request.param, "phi": 4.0, "seed": 3}
    short = {"chains": 2, "warmup": 200, "samples": 200, "engine": "embedded", "progress": False}
    found = once(
        tmp_path_factory,
        f"protected-{request.param}",
        lambda: {g: ds.fit(small, gamma=g, **asked, **short) for g in (0.0, 3.0, np.inf)},
    )
    return {gamma: replace(fit, problem=small) for gamma, fit in found.items()}


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
    """The HTML pages, built once for all workers, every warning an error; at night executed."""
    shared = shared_folder(tmp_path_factory) / "dsstan-docs"
    # A page that was not executed has no kernel to say which language its cells are in.
    unexecuted = ["-D", "nb_execution_mode=off", "-D", "suppress_warnings=myst-nb.lexer"]
    mode = [] if NIGHTLY else unexecuted
    with FileLock(f"{shared}.lock"):
        if not (shared / "done").exists():
            tree = shared / "tree"
            for name in ("docs", "examples", "tests/parity", "stan"):
                skip = shutil.ignore_patterns("_build", "golden", "*.ipynb", "__pycache__")
                shutil.copytree(ROOT / name, tree / name, ignore=skip)
            for path in (*ROOT.glob("*.md"), *ROOT.glob("data/*/README.md")):
                there = tree / path.relative_to(ROOT)
                there.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, there)
            done = subprocess.run(
                ["sphinx-build", "-W", "--keep-going", "-q", *mode, tree / "docs", shared / "html"],
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
def printed(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """What a teaching example prints in quick mode; it must warn of nothing.

    Read off its page at night, when the pages are executed; by day the script is run.
    """
    seen: dict[str, str] = {}

    def of(script: str) -> str:
        if script not in seen and not NIGHTLY:
            done = subprocess.run(
                [sys.executable, str(ROOT / "examples" / script)],
                env=tidy_environment(),
                cwd=request.getfixturevalue("tmp_path_factory").mktemp("example"),
                capture_output=True,
                text=True,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, "")
            seen[script] = done.stdout
        elif script not in seen:
            from bs4 import BeautifulSoup

            built = request.getfixturevalue("built")
            page = built / "teach" / f"{Path(script).stem}.html"
            outputs = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
            assert outputs.select("div.cell_output div.stderr") == []
            blocks = outputs.select("div.cell_output div.stream pre")
            seen[script] = "".join(block.get_text() for block in blocks)
        return seen[script]

    return of
