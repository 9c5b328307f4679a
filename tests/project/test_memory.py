"""Memory: no leak over many syntheses, and a peak as stated."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest

import dsstan as ds
from conftest import ROOT

CALLS = 200

WITHIN = 0.20
"""The peak may differ from the stated one by as much."""

MOST_LEAK = 100_000
"""Bytes that may stay after 200 calls; one copy's matrices of 60 records are 29 kB each. Free
lists come and go by some 40 kB."""

resident = pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="reads the resident size in /proc"
)


def pages():
    return int(Path("/proc/self/statm").read_text().split()[1])


@resident
def test_two_hundred_syntheses_leak_no_memory(kept):
    def run(times):
        for seed in range(times):
            ds.synthesise(kept, 2, seed=seed)
        gc.collect()

    tracemalloc.start()
    run(100)  # caches, pools and the free lists of pandas, as they are counted, have their size
    before, resident_before = tracemalloc.get_traced_memory()[0], pages()
    run(CALLS)
    after, resident_after = tracemalloc.get_traced_memory()[0], pages()
    tracemalloc.stop()
    assert after - before < MOST_LEAK
    # What NumPy and threads take outside Python's allocator; fragments of the heap come and go.
    grown = (resident_after - resident_before) * os.sysconf("SC_PAGESIZE")
    assert grown < 16 * 2**20


@resident
@pytest.mark.nightly("takes minutes")
def test_peak_memory_is_as_stated():
    stated = json.loads((ROOT / "tests" / "benchmarks" / "memory.json").read_text())
    command = [sys.executable, str(ROOT / "tests" / "memory.py")]
    command += ["--records", str(stated["records"])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak = json.loads(done.stdout)["peak_mib"]
    assert abs(peak / stated["peak_mib"] - 1) < WITHIN
