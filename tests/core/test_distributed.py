"""Workers: the same bytes as without them, whoever is lost; strata, frontier, resume."""

from __future__ import annotations

import dataclasses
import os
import pickle
import signal
import stat
import subprocess
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import ROOT, small_table
from dsstan.comparison.frontier import compare
from dsstan.copies.strata import fit_strata
from dsstan.core.distributed import VERSIONS, check_versions, connect
from dsstan.core.errors import DsstanWarning, EngineError, InputError, ReleaseError
from dsstan.core.executors import LocalProcesses, single_threaded
from dsstan.core.files.workspace import leftovers, private_folder, remove
from dsstan.covariance.approximations import EXACT, Vecchia
from dsstan.covariance.vecchia.spread import (
    DistributedStatistics,
    KeptSums,
    block_sums,
    kept_seed,
    spread,
)
from dsstan.covariance.vecchia.statistics import VecchiaStatistics
from dsstan.covariance.window import narrowed_surface

N, NEAR = 5000, 5
QUICK = {"engine": "embedded", "progress": False, "chains": 2, "warmup": 300, "samples": 300}


def many(n: int = N, seed: int = 1) -> pd.DataFrame:
    """A seeded table of n records with a smooth surface."""
    rng = np.random.default_rng(seed)
    s, x = rng.uniform(size=(n, 2)), rng.normal(size=n)
    y = 1 + 0.5 * x + np.sin(6 * s[:, 0]) + np.cos(5 * s[:, 1]) + 0.4 * rng.normal(size=n)
    return pd.DataFrame({"east": s[:, 0], "north": s[:, 1], "x": x, "value": np.exp(y)})


def prepared(n: int = N) -> ds.Problem:
    return ds.prepare(many(n), "log(value) ~ x", coords=("east", "north"), name="many")


def statistics(problem: ds.Problem) -> VecchiaStatistics:
    """Of a tenth of fully smoothed records too, which have sums of their own."""
    a = np.where(np.arange(problem.n_records) % 10 == 0, 0.0, 1.0)
    rows = np.arange(problem.n_records)
    return VecchiaStatistics.of(problem, rows, a_diag=a, protection="preserving", neighbours=NEAR)


def bounds(problem):
    found = ds.Priors().resolve(problem.y, problem.X, problem.d_max)
    return found.phi_bounds, found.r_bounds


def tree(folder: Path) -> dict[str, int]:
    """Permissions of everything in a folder, itself included."""
    found = {".": stat.S_IMODE(folder.stat().st_mode)}
    for path in folder.rglob("*"):
        found[str(path.relative_to(folder))] = stat.S_IMODE(path.lstat().st_mode)
    return found


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """Two worker processes of this machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DSSTAN_WORKDIR", str(tmp_path_factory.mktemp("work")))
        before = dict(os.environ)
        with connect(2) as found:
            assert dict(os.environ) == before
            yield found
            before = dict(os.environ)
        assert dict(os.environ) == before


@pytest.fixture(scope="module")
def dask():
    """A real scheduler on loopback and two workers, with TLS."""
    from distributed import Client, LocalCluster
    from distributed.security import Security

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            protocol="tls",
            security=Security.temporary(),
        ) as scheduler,
        Client(scheduler, set_as_default=False) as client,
        connect(client) as found,
    ):
        yield found


@pytest.fixture(scope="module", params=["processes", "dask"])
def cluster(request):
    """Both kinds of workers."""
    return request.getfixturevalue(request.param)


def pids(cluster) -> set[int]:
    """Processes of the workers, which take a tenth of a second for each task."""
    return {pid for _, (pid, _) in cluster.each(process, {n: (0.1,) for n in range(8)})}


@pytest.fixture(scope="module")
def problem():
    return prepared()


@pytest.fixture(scope="module")
def source(problem):
    return statistics(problem)


@pytest.fixture(scope="module")
def plain(problem, source):
    """The surface without workers."""
    return narrowed_surface(source, *bounds(problem))


def same(surface, other) -> bool:
    """Whether two surfaces and their windows are the same bytes."""
    (a, window), (b, other_window) = surface, other
    return (
        window == other_window
        and a.error == b.error
        and a.coefficients.tobytes() == b.coefficients.tobytes()
    )


def slowly(*arguments):
    """On a worker: sums of some blocks, with time to be killed in."""
    time.sleep(0.3)
    return block_sums(*arguments)


def process(seconds: float = 0.0):
    """On a worker: its process, and its numbers of threads."""
    import numba
    from threadpoolctl import threadpool_info

    time.sleep(seconds)
    blas = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return os.getpid(), (numba.get_num_threads(), max(blas, default=1))


def test_this_process_keeps_its_threads(cluster, source):
    import numba

    for threads in (1, numba.config.NUMBA_NUM_THREADS):
        numba.set_num_threads(threads)
        source.sums(np.array([5.0]), np.array([0.1, 1.0]))
    assert numba.config.NUMBA_NUM_THREADS == numba.config.NUMBA_DEFAULT_NUM_THREADS


def test_a_task_has_one_thread_in_a_process_of_its_own(cluster):
    found = dict(cluster.each(process, {n: (0.1,) for n in range(8)}))
    assert set(found) == set(range(8))
    assert {threads for _, threads in found.values()} == {(1, 1)}
    assert len({pid for pid, _ in found.values()} - {os.getpid()}) == 2 == cluster.workers


def test_workers_that_are_started_have_no_port_that_others_could_reach(processes):
    import psutil

    for pid in pids(processes):
        assert psutil.Process(pid).parent().pid == os.getpid()
        assert psutil.Process(pid).net_connections("all") == []


def test_sums_by_two_workers_are_the_same_bytes_as_without(cluster, problem, source, plain):
    with spread(source, cluster) as spread_out:
        assert isinstance(spread_out, DistributedStatistics)
        assert same(narrowed_surface(spread_out, *bounds(problem)), plain)


@pytest.mark.parametrize("most", [1, 2, 16])
def test_the_bytes_do_not_depend_on_the_blocks_of_a_task(cluster, source, monkeypatch, most):
    monkeypatch.setattr("dsstan.covariance.vecchia.spread.MOST_BLOCKS", most)
    monkeypatch.setattr("dsstan.covariance.vecchia.spread.TASKS_EACH", 1)
    phi, r = np.array([3.0, 9.0]), np.array([0.01, 0.3, 4.0])
    some = np.sort(np.random.default_rng(3).choice(len(source.sites), 4200, replace=False))
    with spread(source, cluster) as spread_out:
        for records in (None, some):
            found = spread_out.sums(phi, r, records)
            assert found.tobytes() == source.sums(phi, r, records).tobytes()


@pytest.mark.parametrize("lost", [1, 2])
def test_workers_that_are_killed_cost_their_tasks_and_not_the_run(
    cluster, source, monkeypatch, lost
):
    monkeypatch.setattr("dsstan.covariance.vecchia.spread.block_sums", slowly)
    phi, r = np.geomspace(2.0, 20.0, 6), np.geomspace(0.01, 1.0, 5)
    victims = sorted(pids(cluster))[:lost]
    with spread(source, cluster) as spread_out:
        nodes = spread_out.at(phi, r)
        found = [next(nodes)]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        found += nodes
    for one, other in zip(found, source.at(phi, r), strict=True):
        assert one.tobytes() == other.tobytes()
    wait_until(lambda: len(pids(cluster) - set(victims)) == 2)


def dies(name: str) -> str:
    """On a worker: a task that ends its process, or one that is done a little later."""
    time.sleep(0.2)
    if name == "bad":
        os.kill(os.getpid(), signal.SIGKILL)
    return name


def test_a_task_that_ends_its_process_again_and_again_costs_itself_alone(cluster):
    found = dict(cluster.each(dies, {name: (name,) for name in ("a", "bad", "b", "c")}))
    good = {name for name, outcome in found.items() if outcome == name}
    assert "ended the worker processes" in str(found["bad"])
    if isinstance(cluster, LocalProcesses):
        assert good == set("abc")
    # Dask blames all that stood on a worker that died, so that it may give up another too.
    assert good
    assert all(isinstance(found[name], EngineError) for name in set(found) - good)


def test_no_task_carries_the_records(cluster, source, monkeypatch):
    sizes, each = [], type(cluster).each

    def weighed(self, function, calls):
        sizes.extend(len(pickle.dumps(call)) for call in calls.values())
        return each(self, function, calls)

    monkeypatch.setattr(type(cluster), "each", weighed)
    some = np.arange(0, len(source.sites), 2)
    with spread(source, cluster) as spread_out:
        spread_out.sums(np.array([3.0, 9.0]), np.geomspace(0.01, 1.0, 40), some)
    assert len(sizes) >= 2
    # Nodes and names only: 40 numbers, two names. The places alone are fifty times as much.
    assert max(sizes) < 4000 < some.nbytes / 4


def test_what_processes_are_sent_is_written_nowhere_and_gone_afterwards(processes, source):
    import psutil

    for expected in (1, 0):
        with spread(source, processes) if expected else nullcontext():
            calls = {n: (0.1,) for n in range(8)}
            assert {held for _, held in processes.each(held_by_process, calls)} == {expected}
            for pid in pids(processes):
                assert [f for f in psutil.Process(pid).open_files() if f.mode != "r"] == []
            assert list(Path(os.environ["DSSTAN_WORKDIR"]).iterdir()) == []


def held_by_process(seconds):
    """On a worker: how many things it holds that are shared."""
    from dsstan.core.executors import _HELD

    time.sleep(seconds)
    return len(_HELD)


def test_what_a_cluster_is_sent_is_gone_afterwards(dask, source):
    def by_worker(dask_worker):
        return len([name for name in dask_worker.plugins if name.startswith("dsstan-")])

    def by_scheduler(dask_scheduler):
        return len([name for name in dask_scheduler.worker_plugins if name.startswith("dsstan-")])

    for expected in (1, 0):
        with spread(source, dask) if expected else nullcontext():
            assert set(dask.client.run(by_worker).values()) == {expected}
            assert dask.client.run_on_scheduler(by_scheduler) == expected


def test_a_client_reaches_the_same_workers_and_an_address_without_a_scheduler_is_refused(
    dask, source, monkeypatch
):
    phi, r = np.array([5.0]), np.array([0.1, 1.0])
    with connect(dask.client) as by_client, spread(source, by_client) as spread_out:
        assert spread_out.sums(phi, r).tobytes() == source.sums(phi, r).tobytes()
    assert dask.client.status == "running"
    monkeypatch.setattr("dsstan.core.distributed.WAIT", 2)
    with pytest.raises(InputError, match="no scheduler"), connect("tcp://127.0.0.1:9"):
        pass


def test_a_scheduler_that_is_lost_ends_the_run_with_an_error(source):
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as it,
        Client(it, set_as_default=False) as client,
        connect(client) as workers,
    ):
        each = workers.each(time.sleep, {n: (0.2,) for n in range(20)})
        next(each)
        client.restart(wait_for_workers=False)
        with pytest.raises(EngineError, match="was lost"):
            list(each)


def test_a_scheduler_without_encryption_is_reached_by_its_address_with_a_warning(source):
    from distributed import LocalCluster

    phi, r = np.array([5.0]), np.array([0.1, 1.0])
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as scheduler:
        address = scheduler.scheduler_address
        assert address.startswith("tcp://127.0.0.1")
        with (
            pytest.warns(DsstanWarning, match="not encrypted"),
            connect(address) as workers,
            spread(source, workers) as spread_out,
        ):
            assert spread_out.sums(phi, r).tobytes() == source.sums(phi, r).tobytes()


def test_a_fit_on_workers_is_the_fit_without(cluster, tmp_path):
    problem = prepared(2500)
    how = {"covariance": Vecchia(neighbours=NEAR), "seed": 3, **QUICK}
    alone = ds.fit(problem, **how)
    spread_out = ds.fit(problem, cluster=cluster, resume=tmp_path / "kept", **how)
    for name, draws in alone.draws.items():
        assert draws.tobytes() == spread_out.draws[name].tobytes()
    modes = tree(tmp_path / "kept")
    assert len(modes) > 10
    assert modes.pop(".") == 0o700
    assert set(modes.values()) == {0o600}


@pytest.mark.parametrize("given", [{"cluster": 2}, {"resume": "kept"}])
@pytest.mark.parametrize("covariance", ["exact", "predictive_process"])
def test_a_covariance_without_sums_over_records_refuses_workers(
    small, given, covariance, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="Vecchia's approximation"):
        ds.fit(small, covariance=covariance, **given, **QUICK)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [0, True, 1.5, None, b"tcp://"])
def test_what_is_no_cluster_is_refused(wrong):
    with pytest.raises(InputError, match="cluster"), connect(wrong):
        pass


def test_without_dask_a_scheduler_is_refused_and_processes_work():
    code = """
import os, sys
sys.modules["distributed"] = None
from dsstan.core.errors import InputError
from dsstan.core.distributed import connect
with connect(1) as workers:
    print(*dict(workers.each(os.getpid, {"a": ()})))
try:
    with connect("tcp://127.0.0.1:9"):
        pass
except InputError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    first, second = done.stdout.splitlines()
    assert first == "a", done.stderr
    assert second.endswith('pip install "dsstan[distributed]"')


def test_dask_is_not_imported_with_the_package():
    code = (
        "import sys, dsstan, dsstan.copies.strata, dsstan.core.distributed; "
        "print([m for m in ('dask', 'distributed') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


DRIVER = """
import os, sys, time
sys.path[:0] = ["tests", "tests/core"]
from test_distributed import bounds, prepared, statistics
from dsstan.core.distributed import connect
from dsstan.covariance.vecchia.spread import KeptSums, spread
from dsstan.covariance.window import narrowed_surface
write = KeptSums.write
def slowly(self, name, values):
    write(self, name, values)
    print("kept", flush=True)
    time.sleep(0.05)
KeptSums.write = slowly
if __name__ == "__main__":
    problem = prepared()
    with connect(1) as cluster, spread(statistics(problem), cluster, sys.argv[1]) as source:
        print(dict(cluster.each(os.getpid, {0: ()}))[0], flush=True)
        narrowed_surface(source, *bounds(problem))
"""


def test_a_run_that_was_killed_goes_on_and_ends_in_the_same_bytes(
    processes, problem, source, plain, tmp_path
):
    folder, work = tmp_path / "kept", tmp_path / "work"
    work.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "DSSTAN_WORKDIR": str(work)},
    ) as driver:
        worker = int(driver.stdout.readline())
        for _ in range(15):
            assert driver.stdout.readline() == "kept\n"
        driver.kill()
    wait_until(lambda: not Path(f"/proc/{worker}").exists())
    for leftover in leftovers([work]):
        remove(leftover)
    assert list(work.iterdir()) == []
    before = len(list(folder.glob("*.npz")))
    with spread(source, processes, folder) as goes_on:
        assert same(narrowed_surface(goes_on, *bounds(problem)), plain)
    total = len(list(folder.glob("*.npz")))
    assert 15 <= before < total
    assert (goes_on.kept.read_count, goes_on.kept.written_count) == (before, total - before)
    with spread(source, None, folder) as again:
        assert same(narrowed_surface(again, *bounds(problem)), plain)
    assert (again.kept.read_count, again.kept.written_count) == (total, 0)


STOPPED = """
import sys
sys.path[:0] = ["tests", "tests/core"]
from test_distributed import works
from dsstan.core.distributed import connect
from dsstan.core.files.workspace import private_folder
if __name__ == "__main__":
    with private_folder(), connect(2) as workers:
        print(*workers._pids.values(), flush=True)
        list(workers.each(works, {n: () for n in range(4)}))
"""


def works():
    """On a worker: much to do, with a private folder."""
    with private_folder():
        time.sleep(600)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_process_that_started_them_and_remove_their_folders(how, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", STOPPED],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "DSSTAN_WORKDIR": str(tmp_path)},
    ) as driver:
        workers = driver.stdout.readline().split()
        folders = {f"dsstan-{pid}-" for pid in [driver.pid, *workers]}
        wait_until(lambda: len(list(tmp_path.glob("dsstan-*"))) == 3)
        assert {path.name.rpartition("-")[0] + "-" for path in tmp_path.iterdir()} == folders
        driver.send_signal(how)
        assert driver.wait(60) != 0
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers))
    left = [path.name for path in tmp_path.iterdir()]
    # Nothing can remove that of a process that is killed; its workers still remove theirs.
    assert len(left) == (how == signal.SIGKILL)
    assert all(name.startswith(f"dsstan-{driver.pid}-") for name in left)


def wait_until(true, seconds: float = 60):
    """Wait until something is so."""
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.1)
    assert true()


def test_a_script_without_the_guard_is_told_of_it(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from dsstan.core.distributed import connect\nwith connect(1):\n    pass\n")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True)
    assert done.returncode != 0
    assert 'the guard if __name__ == "__main__"' in done.stderr


def test_kept_sums_of_other_data_never_match(source, tmp_path):
    phi, r = np.array([5.0]), np.array([0.1, 1.0])
    with spread(source, None, tmp_path) as first:
        first.sums(phi, r)
    z = source.z.copy()
    z[17, -1] = np.nextafter(z[17, -1], np.inf)
    for other in (
        dataclasses.replace(source, z=z),
        dataclasses.replace(source, code=2),
        dataclasses.replace(source, a=source.a * 0.5),
    ):
        with spread(other, None, tmp_path) as second:
            second.sums(phi, r)
        assert second.kept.read_count == 0
    names = {KeptSums(tmp_path, source).name(5.0, r, some) for some in (None, np.arange(9))}
    assert len(names) == 2


def test_a_damaged_file_is_computed_again(source, tmp_path):
    phi, r = np.array([5.0]), np.array([0.1, 1.0])
    with spread(source, None, tmp_path) as first:
        expected = first.sums(phi, r)
    [path] = tmp_path.glob("*.npz")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with spread(source, None, tmp_path) as second:
        assert second.sums(phi, r).tobytes() == expected.tobytes()
    assert second.kept.read_count == 0
    assert np.load(path)["sums"].shape == (7, 2)


def test_a_fit_without_a_seed_goes_on_with_the_seed_of_its_first_run(small, tmp_path):
    A = np.ones(small.n_records)
    how = (small, A, ("none", 1))
    assert kept_seed(tmp_path, None, 77, *how) == 77
    assert kept_seed(tmp_path, None, 78, *how) == 77
    assert kept_seed(tmp_path, 79, 79, *how) == 79
    assert kept_seed(tmp_path, None, 80, small, A, ("paper", 1)) == 80
    assert set(tree(tmp_path).values()) == {0o700, 0o600}


def towns(shares=(60, 55, 70), small=0) -> pd.DataFrame:
    """Several towns, their rows mixed."""
    parts = [small_table(n, seed=20 + i).assign(town=f"town {i}") for i, n in enumerate(shares)]
    if small:
        parts.append(small_table(60, seed=40).iloc[:small].assign(town="hamlet"))
    whole = pd.concat(parts, ignore_index=True).sample(frac=1, random_state=3)
    whole["value"] = whole["value"].round(2)
    return whole


STRATA = {"by": "town", "coords": ("east", "north"), "copies": 3, "threshold": 0.15, "seed": 6}


def strata(table, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DsstanWarning)
        return fit_strata(
            table, "log(value) ~ x", **{**STRATA, **QUICK, "accept_failed": True, **more}
        )


@pytest.fixture(scope="module")
def by_town(processes):
    return strata(towns(small=8), on_failure="leave out", cluster=processes)


def test_strata_come_back_in_the_order_of_the_table(by_town):
    table = towns(small=8)
    there = table[table["town"] != "hamlet"]
    assert by_town.values.shape == (3, len(there))
    for number in range(3):
        copy = by_town.table(number)
        pd.testing.assert_frame_equal(copy.drop(columns="value"), there.drop(columns="value"))
        np.testing.assert_array_equal(copy["value"], by_town.values[number])
        assert not np.any(copy["value"] == there["value"])
    for name, part in by_town.parts.items():
        mine = (there["town"] == name).to_numpy()
        np.testing.assert_array_equal(by_town.values[:, mine], part.values)
    assert list(by_town.parts) == ["town 0", "town 1", "town 2"]


def test_fits_that_come_back_from_workers_are_as_good_as_those_made_here(by_town):
    [part, *_] = by_town.parts.values()
    assert part.fit.covariance is EXACT
    assert ds.assess(part).after.sd(3).shape == (part.problem.n_records,)


@pytest.mark.parametrize("where", [None, "dask"])
def test_a_stratum_has_the_same_copies_on_workers_here_and_beside_other_strata(
    by_town, where, request
):
    workers = None if where is None else request.getfixturevalue(where)
    alone = strata(towns(small=8).query("town == 'town 1'"), cluster=workers)
    np.testing.assert_array_equal(alone.values, by_town.parts["town 1"].values)
    assert len(set(by_town.seeds.values())) == 4


def test_a_stratum_that_is_too_small_releases_nothing_or_is_left_out(by_town):
    with pytest.raises(ReleaseError, match=r"'hamlet' \(8 rows, fewer than the 50"):
        strata(towns(small=8))
    assert by_town.failed["hamlet"].rows == 8
    assert "left out with 8 rows" in repr(by_town)


def test_a_stratum_that_fails_costs_itself_alone(cluster):
    table = towns((60, 55))
    bad = np.flatnonzero(table["town"] == "town 0")[[3, 4]]
    table.iloc[bad, table.columns.get_loc("value")] = -1.0
    with pytest.raises(ReleaseError, match="'town 0' \\(60 rows") as refused:
        strata(table, cluster=cluster)
    assert "position" not in str(refused.value)
    kept = strata(table, cluster=cluster, on_failure="leave out")
    assert list(kept.parts) == ["town 1"]
    assert kept.failed["town 0"].rows == 60
    assert "position" not in str(kept.failed)


def test_the_text_of_an_unforeseen_error_is_not_told(monkeypatch):
    def broken(*_, **__):
        raise ValueError("value 812.5 of Ms Smith")

    monkeypatch.setattr("dsstan.copies.strata.protect", broken)
    with pytest.raises(ReleaseError, match="an unforeseen error \\(ValueError\\)") as refused:
        strata(towns((60,)))
    assert "Smith" not in str(refused.value)


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"by": "county"}, "name of a column"),
        ({"by": "value"}, "the response"),
        ({"on_failure": "skip"}, "on_failure"),
        ({"least": 0}, "least"),
        ({"missing": "draw"}, "missing"),
        ({"protection": "none"}, "protection"),
    ],
)
def test_strata_refuse_what_they_cannot_do_before_any_fit(more, error):
    with pytest.raises(InputError, match=error):
        strata(towns((60,)), **more)


def test_strata_that_stand_for_the_response_are_refused():
    table = towns((300,))
    table["town"] = pd.qcut(table["value"], 100, labels=False) + 1000
    with pytest.raises(ReleaseError, match="'town' puts the records in the order"):
        strata(table)


def test_a_frontier_on_workers_is_the_frontier_in_threads(cluster, small, free, tmp_path):
    how = {"start": free, "seed": 5, "draws": 20, "distances": (0.15,), "copies": (3,), **QUICK}
    how["protections"] = ("paper", "cut")
    threads = compare(small, **how)
    workers = compare(small, cluster=cluster, folder=tmp_path, **how)
    pd.testing.assert_frame_equal(threads.table, workers.table, check_exact=True)
    assert workers.computed == 3
    assert compare(small, cluster=cluster, folder=tmp_path, **how).computed == 0
    with pytest.raises(InputError, match="workers are threads"):
        compare(small, cluster=cluster, workers=2, **how)


def test_a_task_on_a_worker_leaves_the_number_of_threads_as_it_was():
    import numba

    before = numba.get_num_threads()
    assert single_threaded(numba.get_num_threads) == 1
    assert numba.get_num_threads() == before


def test_workers_with_other_versions_are_refused(dask):
    mine = dask.client.get_versions(packages=VERSIONS[1:])["client"]["packages"]
    assert all(mine[name] for name in ("dsstan", "numba", "numpy", "scipy", "python"))
    check_versions(mine, mine)
    check_versions(mine, {**mine, "stanli": None, "cmdstanpy": None, "python": "3.11.99.final.0"})
    for name, other in (("scipy", "0.1"), ("python", "3.99.0.final.0")):
        with pytest.raises(InputError, match=f"a worker has {name} .* and this process"):
            check_versions(mine, {**mine, name: other})
    with pytest.raises(InputError, match="lack dsstan"):
        check_versions(mine, {**mine, "dsstan": None})
