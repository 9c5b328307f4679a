"""Options in messages are spelled as the reader types them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dsstan.core.spelling import COMMAND, JOB, PYTHON, options_typed_in, spelled

TABLE = "lon,lat,rent\n" + "".join(f"{4 + i / 100},{52 + i % 3 / 10},{500 + i}\n" for i in range(9))


@pytest.mark.parametrize(
    ("surface", "text", "pair", "truth"),
    [
        (PYTHON, 'engine="direct"', "phi_bounds=(0.1, 3)", "strict=True"),
        (COMMAND, "--engine direct", "--phi-bounds 0.1 3", "--strict"),
        (JOB, 'engine = "direct"', "phi_bounds = [0.1, 3]", "strict = true"),
    ],
)
def test_an_option_is_spelled_for_its_surface(
    surface: str, text: str, pair: str, truth: str
) -> None:
    with options_typed_in(surface):
        assert spelled("engine", "direct") == text
        assert spelled("phi_bounds", (0.1, 3)) == pair
        assert spelled("strict", True) == truth
    assert spelled("strict", True) == "strict=True"


def test_a_command_and_a_job_spell_the_same_message_each_in_its_own_way(tmp_path: Path) -> None:
    (tmp_path / "flats.csv").write_text(TABLE)
    (tmp_path / "job.toml").write_text(
        'table = "flats.csv"\nformula = "rent ~ 1"\ncoords = ["lon", "lat"]\nout = "out"\n'
    )
    typed = ["synthesise", "flats.csv", "--formula", "rent ~ 1", "--coords", "lon", "lat"]
    for arguments, said in (
        ([*typed, "--out", "out"], "--distance projected"),
        (["run", "job.toml"], 'distance = "projected"'),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "dsstan", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 2
        assert said in " ".join(done.stderr.split())
