"""The engines: what they share, how they fail, and what they leave behind."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import cmdstanpy
import numpy as np
import pytest
from scipy import stats

import dsstan as ds
from conftest import leave_out, shared_folder, small_table
from dsstan.core.errors import EngineError, InputError
from dsstan.engines import (
    SAMPLER_COLUMNS,
    CmdStanEngine,
    Draws,
    EmbeddedEngine,
    SamplerSettings,
    embedded,
    get_engine,
    programs,
)
from dsstan.engines.base import IterationCount, jsonable
from dsstan.engines.cmdstan import program_cache
from dsstan.engines.programs import Program

DENSITY = 1e-8
"""The density tier of the design: one formula, two implementations."""

ORPHAN_SECONDS = 20.0
"""A child looks for its parent once a second."""

START_SECONDS = 60.0
"""For a process to reach its run, on a busy machine."""

PLANTED = "4321.123456789"
"""A value of the data that can be recognised in any message or file."""

QUICK = SamplerSettings(chains=2, warmup=200, samples=200)

MINI = """
data {
  int<lower=1> N;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=0> sigma;
}
model {
  target += normal_lpdf(y | mu, sigma);
}
"""

MINI_DATA = {"N": 4, "y": np.array([1.0, 2.0, 4.0, float(PLANTED)])}
MINI_INITS = [{"mu": 1000.0, "sigma": 2000.0}] * 2


def folder_of_programs(folder, monkeypatch, **sources):
    """Let the package find its programs in another folder."""
    folder.mkdir(exist_ok=True)
    for name, source in sources.items():
        (folder / f"{name}.stan").write_text(source)
    monkeypatch.setattr(programs, "stan_folder", lambda: folder)
    return folder


@pytest.fixture
def mini(tmp_path, monkeypatch):
    """A program that compiles fast, in a folder of its own."""
    folder_of_programs(tmp_path / "stan", monkeypatch, mini=MINI)
    return Program("mini")


def state_of(folder):
    """Every file of a folder with its time and size."""
    return {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in sorted(folder.rglob("*"))}


def holders_of(text, *folders):
    """Files below the folders that hold a text."""
    wanted = text.encode()
    files = [p for folder in folders for p in folder.rglob("*") if p.is_file()]
    return [p for p in files if wanted in p.read_bytes()]


# Draws, settings, seeds, data


@pytest.fixture
def draws():
    names = ("beta[1]", "beta[2]", "sigma_sq", "sigma_sq_raw", "R[1,1]", "R[1,2]")
    values = np.arange(2 * 5 * 6, dtype=float).reshape(2, 5, 6)
    return Draws(names, values, np.zeros((2, 5, 4)))


def test_a_scalar_of_the_draws_has_shape_chains_by_samples(draws):
    np.testing.assert_array_equal(draws["sigma_sq"], draws.values[:, :, 2])


def test_a_vector_of_the_draws_keeps_its_elements_in_order(draws):
    np.testing.assert_array_equal(draws["beta"], draws.values[:, :, :2])
    np.testing.assert_array_equal(draws["R"], draws.values[:, :, 4:])


def test_one_element_of_a_vector_can_be_asked_for(draws):
    np.testing.assert_array_equal(draws["beta[2]"], draws.values[:, :, 1])


@pytest.mark.parametrize("name", ["bet", "sigma", "beta[3]", ""])
def test_a_name_that_is_not_there_is_a_key_error(draws, name):
    with pytest.raises(KeyError):
        draws[name]


@pytest.mark.parametrize(
    "wrong",
    [
        {"chains": 0},
        {"warmup": 0},
        {"samples": 1.5},
        {"max_treedepth": 0},
        {"adapt_delta": 1.0},
        {"adapt_delta": 0.0},
        {"metric": "dense"},
    ],
)
def test_sampler_settings_out_of_range_are_refused_by_name(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        SamplerSettings(**wrong)


@pytest.mark.parametrize("kind", [EmbeddedEngine, CmdStanEngine])
@pytest.mark.parametrize("seed", [-1, 0, 2**31, 2**32, 1.5, True, "1"])
def test_a_seed_that_an_engine_would_change_in_silence_is_refused(mini, log, kind, seed):
    with pytest.raises(InputError, match="Stan seed"):
        kind().sample(mini, MINI_DATA, settings=QUICK, seed=seed, inits=MINI_INITS)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    "shape",
    [
        float,
        np.float64,
        lambda v: np.array([1.0, v]),
        lambda v: [1.0, v],
        lambda v: {"inner": [np.array([[v]])]},
    ],
    ids=["float", "numpy number", "array", "list", "nested"],
)
def test_data_that_is_not_finite_never_reaches_stan(bad, shape):
    with pytest.raises(InputError, match="finite"):
        jsonable({"y": shape(bad)})


def test_the_embedded_engine_refuses_data_that_is_not_finite(mini):
    with pytest.raises(InputError, match="finite"):
        EmbeddedEngine().log_density(mini, {"N": 1, "y": np.array([np.nan])}, [])


def test_arrays_and_numpy_numbers_reach_stan_as_plain_numbers():
    data = {"N": np.int64(2), "y": np.array([[1.5, 2.0]]), "flag": np.bool_(True), "z": (1, 2.5)}
    assert jsonable(data) == {"N": 2, "y": [[1.5, 2.0]], "flag": True, "z": [1, 2.5]}


# Which engine


def lacking(monkeypatch, *, embedded=False, cmdstan=False, tool=None):
    """Pretend that an engine, or a tool, is not installed."""
    if embedded:
        found = importlib.util.find_spec
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda n, *a: None if n == "stanli" else found(n, *a)
        )
    if cmdstan:

        def nowhere():
            raise ValueError("no CmdStan installation found")

        monkeypatch.setattr(cmdstanpy, "cmdstan_path", nowhere)
    else:
        monkeypatch.setattr(cmdstanpy, "cmdstan_path", lambda: "/somewhere/cmdstan")
    monkeypatch.setattr(shutil, "which", lambda name: None if name == tool else f"/usr/bin/{name}")


def test_a_missing_embedded_engine_says_what_to_install(monkeypatch):
    lacking(monkeypatch, embedded=True)
    with pytest.raises(EngineError, match=r"stanli is not installed; pip install"):
        get_engine("embedded")


def test_a_missing_cmdstan_says_what_to_install(monkeypatch):
    lacking(monkeypatch, cmdstan=True)
    with pytest.raises(EngineError, match="install_cmdstan, or set CMDSTAN"):
        get_engine("cmdstan")


@pytest.mark.parametrize(("tool", "package"), [("make", "make"), ("g++", "g[+][+]")])
def test_a_missing_compiler_says_what_to_install(monkeypatch, tool, package):
    lacking(monkeypatch, tool=tool)
    with pytest.raises(EngineError, match=f"apt-get install {package}"):
        get_engine("cmdstan")


def test_without_any_engine_auto_says_how_to_get_either(monkeypatch):
    lacking(monkeypatch, embedded=True, cmdstan=True)
    with pytest.raises(EngineError, match=r"install_cmdstan(.|\n)*pip install"):
        get_engine()


def test_auto_takes_cmdstan_where_there_is_one(monkeypatch):
    lacking(monkeypatch)
    assert get_engine("auto").name == "cmdstan"


def test_auto_takes_the_embedded_engine_where_there_is_no_cmdstan(monkeypatch):
    lacking(monkeypatch, cmdstan=True)
    assert get_engine("auto").name == "embedded"


@pytest.mark.parametrize("name", ["stan", "CmdStan", ""])
def test_an_unknown_engine_is_refused_with_the_names_there_are(name):
    with pytest.raises(InputError, match='"auto", "cmdstan", "embedded" or "direct"'):
        get_engine(name)


# Both engines


@pytest.fixture(scope="session")
def compiled(tmp_path_factory):
    """One cache of compiled programs for all workers, so that each is compiled once."""
    folder = shared_folder(tmp_path_factory) / "compiled"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def runner(engine, mini, compiled, monkeypatch):
    """Each engine, the mini program compiled once."""
    monkeypatch.setenv("DSSTAN_CACHE", str(compiled))
    return get_engine(engine)


def test_both_engines_give_the_same_names_shapes_and_sampler_columns(runner, mini):
    drawn = runner.sample(mini, MINI_DATA, settings=QUICK, seed=7, inits=MINI_INITS)
    assert drawn.names == ("mu", "sigma")
    assert drawn.values.shape == (2, 200, 2)
    assert drawn.sampler.shape == (2, 200, len(SAMPLER_COLUMNS))
    accept, depth, divergent, energy = np.moveaxis(drawn.sampler, 2, 0)
    assert np.all((accept >= 0) & (accept <= 1))
    assert np.all((depth >= 0) & (depth <= QUICK.max_treedepth) & (depth == np.round(depth)))
    assert np.all(np.isin(divergent, [0, 1]))
    assert np.all(np.isfinite(energy))


def test_the_same_seed_gives_the_same_draws(runner, mini):
    first, second, other = (
        runner.sample(mini, MINI_DATA, settings=QUICK, seed=s, inits=MINI_INITS).values
        for s in (7, 7, 8)
    )
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_chains_differ_from_each_other(runner, mini):
    drawn = runner.sample(mini, MINI_DATA, settings=QUICK, seed=7, inits=MINI_INITS)
    assert not np.array_equal(drawn.values[0], drawn.values[1])


def test_the_log_density_keeps_its_constants_and_its_jacobian(runner, mini):
    points = [{"mu": 1.0, "sigma": 2.0}, {"mu": -500.0, "sigma": 1500.0}]
    found = runner.log_density(mini, MINI_DATA, points)
    expected = [
        stats.norm.logpdf(MINI_DATA["y"], p["mu"], p["sigma"]).sum() + np.log(p["sigma"])
        for p in points
    ]
    np.testing.assert_allclose(found, expected, rtol=DENSITY)


def test_a_run_that_stan_refuses_gives_one_engine_error_without_values(runner, mini):
    wrong = {"N": 3, "y": MINI_DATA["y"]}
    with pytest.raises(EngineError) as caught:
        runner.sample(mini, wrong, settings=QUICK, seed=1, inits=MINI_INITS)
    assert "mini.stan" in str(caught.value)
    assert "4321" not in str(caught.value)
    # A traceback would show what hangs on the error as well.
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_progress_ends_at_one(runner, mini):
    seen = []
    runner.sample(mini, MINI_DATA, settings=QUICK, seed=1, inits=MINI_INITS, advance=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_iterations_are_added_up_over_chains_however_their_lines_begin():
    seen = []
    count = IterationCount(SamplerSettings(chains=2, warmup=5, samples=5), seen.append)
    assert count.read("Chain [0] Iteration: 5 / 10 [ 50%]  (Warmup)")
    assert count.read("Chain [1] Chain [2] Iteration: 10 / 10 [100%]  (Sampling)")
    assert not count.read("Chain [0] Gradient evaluation took 1e-05 seconds")
    assert seen == [0.25, 0.75]


# The embedded engine's child


def worker(monkeypatch, path, source):
    """Let a script stand in for the child process."""
    path.write_text(source)
    monkeypatch.setattr(embedded, "_WORKER", path)


@pytest.mark.parametrize("records", [4, 300_000])
def test_a_crash_of_the_child_gives_one_engine_error_and_leaves_the_session_alive(
    monkeypatch, tmp_path, records
):
    """Also while more data than a pipe holds is still being written."""
    script = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
    worker(monkeypatch, tmp_path / "crash.py", script)
    with pytest.raises(EngineError, match="signal 11; your session is unharmed"):
        EmbeddedEngine().log_density(Program("restricted"), {"y": np.ones(records)}, [])


def test_an_unforeseen_failure_of_the_child_shows_no_traceback_of_it(monkeypatch, tmp_path):
    worker(monkeypatch, tmp_path / "fail.py", f"raise KeyError({PLANTED})\n")
    with pytest.raises(EngineError, match="exit code 1") as caught:
        EmbeddedEngine().log_density(Program("restricted"), {"y": np.ones(3)}, [])
    assert PLANTED not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("data { vector[4] y } model { }", "bad.stan"),
        (
            'data { int N; vector[N] y; } transformed data { reject("y holds ", y[4]); }'
            " parameters { real mu; real sigma; } model { }",
            "y holds #",
        ),
    ],
    ids=["syntax", "reject"],
)
def test_a_program_that_cannot_run_gives_an_engine_error_without_data_values(
    tmp_path, monkeypatch, source, said
):
    folder_of_programs(tmp_path / "stan", monkeypatch, bad=source)
    with pytest.raises(EngineError) as caught:
        EmbeddedEngine().sample(Program("bad"), MINI_DATA, settings=QUICK, seed=1, inits=MINI_INITS)
    assert said in str(caught.value)
    assert "4321" not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_missing_program_is_named(tmp_path, monkeypatch):
    folder_of_programs(tmp_path / "stan", monkeypatch)
    with pytest.raises(EngineError, match="'nothing'"):
        EmbeddedEngine().log_density(Program("nothing"), {}, [])


def children_of(pid):
    """Process numbers of the children of a process, of all its threads."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(p) for p in (task / "children").read_text().split()]
    return found


def alive(pid):
    """Whether a process runs; a dead one that nobody has waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


LONG_RUN = f"""
import signal, sys
from pathlib import Path
from dsstan.engines import programs
from dsstan import engines
programs.stan_folder = lambda: Path(sys.argv[2])
if sys.argv[1] == "cmdstan":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
engines.get_engine(sys.argv[1]).sample(
    programs.Program("mini"),
    {{"N": 4, "y": [1.0, 2.0, 4.0, {PLANTED}]}},
    settings=engines.SamplerSettings(chains=2, warmup=50_000_000, samples=10),
    seed=1,
    inits=[{{"mu": 1.0, "sigma": 2.0}}] * 2,
    advance=lambda share: print("sampling", flush=True),
)
"""

in_proc = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="looks processes up in /proc"
)


def long_run(engine, program):
    """A process in the midst of a run that would take hours."""
    command = [sys.executable, "-c", LONG_RUN, engine, str(program.folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def assert_they_end(pids):
    """Every one of these processes is gone in time; what is not, is ended."""
    end = time.monotonic() + ORPHAN_SECONDS
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    left = [pid for pid in pids if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


@in_proc
@pytest.mark.parametrize("kill", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_child_ends_soon_after_its_parent_was_killed(mini, kill):
    with long_run("embedded", mini) as parent:
        # Stan speaks at its first iteration, in the midst of the run.
        assert parent.stdout.readline() == b"sampling\n"
        [child] = children_of(parent.pid)
        assert alive(child)
        parent.send_signal(kill)
        parent.wait(ORPHAN_SECONDS)
    assert_they_end([child])


def test_the_embedded_engine_writes_nothing_to_disk_during_a_fit(tmp_path, monkeypatch):
    """A file made and removed again would change its folder's time."""
    folders = {}
    for name in ("TMPDIR", "DSSTAN_WORKDIR", "XDG_CACHE_HOME", "HOME", "DSSTAN_CACHE"):
        folders[name] = tmp_path / name
        folders[name].mkdir()
        monkeypatch.setenv(name, str(folders[name]))
    monkeypatch.setattr("tempfile.tempdir", str(folders["TMPDIR"]))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    before = state_of(tmp_path)
    problem = ds.prepare(small_table(30), "log(value) ~ x", coords=("east", "north"))
    ds.fit(problem, seed=1, engine="embedded", chains=2, warmup=200, samples=200, progress=False)
    assert state_of(tmp_path) == before


# CmdStan's cache, with a compiler that only pretends


def pretended_home(folder):
    """A CMDSTAN folder whose make takes a second to write a file and to say so."""
    (folder / "bin").mkdir(parents=True)
    (folder / "makefile").write_text(
        "CMDSTAN_VERSION := 2.39.0\n"
        "%: %.stan\n"
        '\t@if grep -q WRONG "$<"; then echo "Syntax error in $<"; exit 1; fi\n'
        '\t@sleep 0.5; echo "$@" >> "$(COMPILE_LOG)"\n'
        '\t@(echo "#!/bin/sh"; cat "$<") > "$@"; chmod +x "$@"\n'
    )
    stanc = folder / "bin" / "stanc"
    stanc.write_text("#!/bin/sh\necho '{}'\n")
    stanc.chmod(0o755)
    return folder


def use_pretended_compiler(monkeypatch, folder):
    """Let cmdstanpy find that folder; returns the log of what was compiled."""
    if shutil.which("make") is None:
        leave_out("make is missing; apt-get install make")
    log = folder / "compiled.log"
    log.write_text("")
    monkeypatch.setenv("CMDSTAN", str(pretended_home(folder / "home")))
    monkeypatch.setenv("COMPILE_LOG", str(log))
    monkeypatch.setenv("DSSTAN_CACHE", str(folder / "cache"))
    return log


@pytest.fixture
def log(tmp_path, monkeypatch):
    """What the pretended compiler has compiled, one line each."""
    return use_pretended_compiler(monkeypatch, tmp_path)


def compiled_files(log):
    return log.read_text().split()


def test_a_program_is_compiled_once_and_then_taken_from_the_cache(mini, log):
    CmdStanEngine().prepare(mini)
    [executable] = compiled_files(log)
    before = state_of(program_cache())
    CmdStanEngine().prepare(Program("mini"))
    assert compiled_files(log) == [executable]
    after = state_of(program_cache())
    assert after[Path(executable)] == before[Path(executable)]


@pytest.mark.parametrize("what", ["no mark", "truncated", "empty", "gone", "other mark"])
def test_a_damaged_entry_of_the_cache_is_compiled_again(mini, log, what):
    CmdStanEngine().prepare(mini)
    executable = Path(compiled_files(log)[0])
    whole, mark = executable.read_bytes(), executable.with_name("ok")
    match what:
        case "no mark":
            mark.unlink()
        case "truncated":
            executable.write_bytes(whole[:-10])
        case "empty":
            executable.write_bytes(b"")
        case "gone":
            executable.unlink()
        case "other mark":
            mark.write_text("ok")
    CmdStanEngine().prepare(mini)
    assert len(compiled_files(log)) == 2
    assert executable.read_bytes() == whole
    CmdStanEngine().prepare(mini)
    assert len(compiled_files(log)) == 2


def test_a_failed_compilation_is_not_taken_for_a_program_later(mini, log):
    mini.path.write_text(MINI + "// WRONG")
    wrong = Program("mini")
    with pytest.raises(EngineError, match=r"mini\.stan.*[Ss]yntax error"):
        CmdStanEngine().prepare(wrong)
    with pytest.raises(EngineError):
        CmdStanEngine().prepare(wrong)
    mini.path.write_text(MINI)
    CmdStanEngine().prepare(Program("mini"))
    assert len(compiled_files(log)) == 1


@pytest.mark.parametrize("block", ["functions", "data"])
def test_a_changed_included_file_is_another_entry_of_the_cache(mini, log, block):
    mini.folder.joinpath("shared").mkdir()
    included = mini.folder / "shared" / "some.stan"
    source = MINI if "functions {" in MINI else "functions {\n}\n" + MINI
    mini.path.write_text(
        source.replace(f"{block} {{\n", f"{block} {{\n  #include shared/some.stan\n", 1)
    )
    assert Program("mini").includes == ("shared/some.stan",)
    for text in ("// one\n", "// two\n"):
        included.write_text(text)
        CmdStanEngine().prepare(Program("mini"))
    first, second = (Path(file).parent for file in compiled_files(log))
    assert first != second
    assert (second / "shared" / "some.stan").read_text() == "// two\n"


def test_another_cmdstan_is_another_entry_of_the_cache(mini, log, tmp_path, monkeypatch):
    CmdStanEngine().prepare(mini)
    monkeypatch.setenv("CMDSTAN", str(pretended_home(tmp_path / "another")))
    CmdStanEngine().prepare(mini)
    assert len(set(compiled_files(log))) == 2


def test_two_processes_that_compile_at_once_share_one_compilation(mini, log):
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from dsstan.engines import programs as programs\n"
        "from dsstan.engines import CmdStanEngine\n"
        "programs.stan_folder = lambda: Path(sys.argv[1])\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
        "CmdStanEngine().prepare(programs.Program('mini'))\n"
    )
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-c", script, str(mini.folder)]
    both = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]
    for process in both:
        assert process.stdout.readline() == "ready\n"
    for process in both:
        process.stdin.write("go\n")
        process.stdin.flush()
    for process in both:
        _, log_of_cmdstanpy = process.communicate()
        assert process.returncode == 0
        assert log_of_cmdstanpy == ""
    assert len(compiled_files(log)) == 1


def test_compiling_writes_nothing_beside_the_sources_or_into_cmdstan(mini, log):
    home = Path(os.environ["CMDSTAN"])
    before = state_of(mini.folder), state_of(home)
    CmdStanEngine().prepare(mini)
    assert (state_of(mini.folder), state_of(home)) == before


def test_the_path_of_cmdstan_is_left_as_it_was(mini, log):
    before = dict(os.environ), cmdstanpy.cmdstan_path()
    CmdStanEngine().prepare(mini)
    assert (dict(os.environ), cmdstanpy.cmdstan_path()) == before


def test_the_cache_is_where_the_environment_says_else_in_the_users_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("DSSTAN_CACHE", str(tmp_path))
    assert program_cache() == tmp_path / "programs"
    monkeypatch.delenv("DSSTAN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "users"))
    assert "dsstan" in program_cache().parts


# CmdStan's runs


@pytest.fixture
def private(cmdstan_home, compiled, mini, tmp_path, monkeypatch):
    """A real CmdStan whose private folders are made in an empty folder."""
    monkeypatch.setenv("DSSTAN_CACHE", str(compiled))
    folder = tmp_path / "private"
    folder.mkdir()
    monkeypatch.setenv("DSSTAN_WORKDIR", str(folder))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    CmdStanEngine().prepare(mini)
    return folder


def places(*more):
    """Where a run could have left something: cmdstanpy's folder, the cache, the rest."""
    return [Path(cmdstanpy._TMPDIR), program_cache(), Path.cwd(), *more]


def test_after_a_run_the_private_folder_is_gone_and_no_file_holds_the_data(private, mini):
    CmdStanEngine().sample(mini, MINI_DATA, settings=QUICK, seed=1, inits=MINI_INITS)
    CmdStanEngine().log_density(mini, MINI_DATA, [{"mu": float(PLANTED), "sigma": 1.0}])
    assert list(private.iterdir()) == []
    assert holders_of(PLANTED, *places()) == []


def test_after_a_failed_run_the_private_folder_is_gone_and_no_file_holds_the_data(private, mini):
    wrong = {"N": 3, "y": MINI_DATA["y"]}
    with pytest.raises(EngineError):
        CmdStanEngine().sample(mini, wrong, settings=QUICK, seed=1, inits=MINI_INITS)
    with pytest.raises(EngineError):
        CmdStanEngine().log_density(mini, wrong, [MINI_INITS[0]])
    assert list(private.iterdir()) == []
    assert holders_of(PLANTED, *places()) == []


def test_an_interrupted_run_leaves_no_private_folder(private, mini, monkeypatch):
    def interrupt(*args, **kwargs):
        assert len(list(private.iterdir())) == 1
        assert holders_of(PLANTED, private)
        raise KeyboardInterrupt

    monkeypatch.setattr(cmdstanpy.CmdStanModel, "sample", interrupt)
    with pytest.raises(KeyboardInterrupt):
        CmdStanEngine().sample(mini, MINI_DATA, settings=QUICK, seed=1, inits=MINI_INITS)
    assert list(private.iterdir()) == []


@in_proc
def test_a_terminated_run_ends_its_chains_and_leaves_no_private_folder(private, mini):
    """cmdstanpy alone would wait for the chains to run to their end."""
    with long_run("cmdstan", mini) as parent:
        end = time.monotonic() + START_SECONDS
        while len(chains := children_of(parent.pid)) < 2 and time.monotonic() < end:
            time.sleep(0.05)
        assert len(chains) == 2
        assert len(list(private.iterdir())) == 1
        parent.terminate()
        assert parent.wait(ORPHAN_SECONDS) == 143
    assert_they_end(chains)
    assert list(private.iterdir()) == []


def test_only_its_owner_may_read_the_data_of_a_run(private, mini, monkeypatch):
    modes = []

    def look(self, **arguments):
        folder = Path(arguments["output_dir"])
        modes.append(folder.stat().st_mode & 0o777)
        modes.extend(p.stat().st_mode & 0o077 for p in folder.iterdir())
        raise RuntimeError("seen")

    monkeypatch.setattr(cmdstanpy.CmdStanModel, "sample", look)
    with pytest.raises(EngineError):
        CmdStanEngine().sample(mini, MINI_DATA, settings=QUICK, seed=1, inits=MINI_INITS)
    assert modes[0] == 0o700
    assert set(modes[1:]) == {0}


def test_a_real_compilation_writes_nothing_beside_the_sources(private, mini):
    assert [p.name for p in mini.folder.iterdir()] == ["mini.stan"]
