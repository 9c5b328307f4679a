"""The demo, killed at random moments."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import kill_at_random

RUNS = 5
"""``python tests/kills.py`` does a hundred, and with the demo itself."""


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks processes up in /proc")
def test_demos_killed_at_random_leave_nothing(tmp_path):
    tally = kill_at_random(tmp_path, RUNS, seed=3, small=True)
    assert tally.runs == RUNS
    assert tally.half == 0
    assert tally.left_after_clean == 0
    assert tally.folders_after_clean == 0
