"""The demo, killed at random moments."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import kill_at_random


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize("runs", [1, pytest.param(5, marks=pytest.mark.nightly("kills"))])
def test_demos_killed_at_random_leave_nothing(runs, tmp_path):
    """``python tests/kills.py`` does a hundred, and with the demo itself."""
    tally = kill_at_random(tmp_path, runs, seed=3, small=True)
    assert tally.runs == runs
    assert tally.half == 0
    assert tally.left_after_clean == 0
    assert tally.folders_after_clean == 0
