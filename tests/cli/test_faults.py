"""Faults done to real runs: a whole release or none, and an error that says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import FAULTS, LeftOut, inject

from conftest import leave_out

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/task").exists(), reason="looks processes up in /proc"
)

ADVICE = {
    4: ("choose", "make it", "written"),
    1: ("Try again", "Free some", "engine", "Please"),
    2: ("make it", "Free some"),
}
"""Words of which a message with this exit code holds one."""


BY_DAY = ("the working folder is not there", "SIGTERM during a fit")
"""Faults of every run; the others are done at night."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n in BY_DAY else pytest.mark.nightly("faults")) for n in FAULTS],
)
def test_after_a_fault_there_is_a_whole_release_or_none_and_nothing_else(name, tmp_path):
    _, codes, release = FAULTS[name]
    try:
        outcome = inject(name, tmp_path / "place")
    except LeftOut as reason:
        leave_out(str(reason))
    assert outcome.release == release, outcome
    assert outcome.code in (codes if isinstance(codes, tuple) else (codes,)), outcome
    assert outcome.left == 0, outcome
    assert "Traceback" not in outcome.said
    if outcome.code in ADVICE and release == "none":
        assert any(word in outcome.said for word in ADVICE[outcome.code]), outcome
