"""Commands, killed at random moments."""

from __future__ import annotations

from pathlib import Path

import pytest
from kills import COMMANDS, kill_at_random


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="looks processes up in /proc")
@pytest.mark.parametrize(
    ("runs", "commands"),
    [
        (1, ("run",)),
        pytest.param(100, COMMANDS, marks=pytest.mark.nightly("a hundred kills")),
        pytest.param(3, ("demo",), marks=pytest.mark.nightly("kills of the demo")),
    ],
)
def test_commands_killed_at_random_leave_nothing_half(runs, commands, tmp_path):
    tally = kill_at_random(tmp_path, runs, 3, commands)
    assert tally.runs == runs
    assert tally.half == 0
    assert tally.left_after_clean == 0
    assert tally.folders_after_clean == 0
