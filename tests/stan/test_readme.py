"""stan/README.md describes the programs that are there, and its commands run."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conftest import NIGHTLY, leave_out
from dsstan.engines import CmdStanEngine, EmbeddedEngine, SamplerSettings
from dsstan.engines.programs import PROGRAMS, REFERENCE_PROGRAMS, Program

ROOT = Path(__file__).resolve().parents[2]
STAN = ROOT / "stan"
README = (STAN / "README.md").read_text(encoding="utf-8")
ALL = (*PROGRAMS, *REFERENCE_PROGRAMS)
ITERATIONS = 50
BYTES_OF_LAPACK = 1e-8
"""The surface's coefficients differ by rounding from one LAPACK to the next, and no more."""


def section(name: str) -> str:
    """The README's section of one program."""
    return README.split(f"\n## {name}\n", 1)[1].split("\n## ", 1)[0]


def rows(text: str) -> list[tuple[list[str], str]]:
    """Names and the rest of each row of a table whose first column has names alone."""
    found = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \| (.*) \|$", text, re.MULTILINE)
    return [(re.findall(r"\w+", names), rest) for names, rest in found]


def table(name: str) -> tuple[str, str]:
    """The two parts of a program's table, data and output."""
    text = section(name).split(f"### Data and output of {name}\n", 1)[1]
    data, output = text.split("| **Output** | |\n")
    return data, output


def named(part: str) -> list[str]:
    """Names in a part of a program's table."""
    return [name for names, _ in rows(part) for name in names]


def shared(heading: str) -> set[str]:
    """Names that a table of the section on all programs explains."""
    text = section("What all programs share").split(f"### {heading} that programs share\n", 1)[1]
    return {name for names, _ in rows(text.split("\n### ", 1)[0]) for name in names}


def whole(name: str) -> str:
    """Text of a program with the lines that it shares with others, without functions."""

    def lines(found: re.Match[str]) -> str:
        text = (STAN / found[2]).read_text(encoding="utf-8")
        return "".join(f"{found[1]}{line}\n" for line in text.splitlines())

    return re.sub(r"^( *)#include (shared/\S+)\n", lines, Program(name).source, flags=re.MULTILINE)


def block(name: str, kind: str) -> str:
    """A block of a program without its comments, or nothing where there is none."""
    source = re.sub(r"//.*", "", re.sub(r"/\*.*?\*/", "", whole(name), flags=re.DOTALL))
    found = re.search(rf"^{kind} {{(.*?)^}}", source, re.DOTALL | re.MULTILINE)
    return found[1] if found else ""


def declared(name: str, *kinds: str) -> list[str]:
    """Names declared at the top level of these blocks, in order."""
    text = "".join(block(name, kind) for kind in kinds)
    kinds_of = "array|int|real|vector|matrix|cholesky_factor_corr"
    top = re.findall(rf"^  (?:{kinds_of})\b([^;]*);", text, re.MULTILINE)
    left = [re.split(r"(?<![<>=!])=(?!=)", re.sub(r"<[^>]*>", "", each))[0] for each in top]
    return [re.findall(r"\w+", each)[-1] for each in left]


def data_of(name: str) -> dict[str, Any]:
    """The JSON file of a program."""
    loaded: dict[str, Any] = json.loads((STAN / "data" / f"{name}.json").read_text())
    return loaded


def maker() -> Any:
    """The script that makes the JSON files, as a module."""
    spec = importlib.util.spec_from_file_location("make_data", STAN / "data" / "make_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fences(text: str, language: str) -> list[str]:
    """Code of that language in a text."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_every_program_has_a_section_and_a_row() -> None:
    files = [p for p in STAN.rglob("*.stan") if p.parent.name != "shared"]
    programs = {p.relative_to(STAN).with_suffix("").as_posix() for p in files}
    assert programs == set(ALL)
    for name in ALL:
        assert f"\n## {name}\n" in README
        assert f"\n| [`{name}.stan`](#{name.replace('/', '')}) |" in README


def test_every_file_of_functions_is_named() -> None:
    for path in (STAN / "functions").glob("*.stanfunctions"):
        assert f"`{path.stem}`" in README


@pytest.mark.parametrize("name", ALL)
def test_data_names_agree_in_program_readme_and_json(name: str) -> None:
    names = declared(name, "data")
    assert named(table(name)[0]) == names
    assert sorted(data_of(name)) == sorted(names)


@pytest.mark.parametrize("name", ALL)
def test_parameters_and_generated_quantities_are_described(name: str) -> None:
    names = declared(name, "parameters", "transformed parameters", "generated quantities")
    assert named(table(name)[1]) == names


TOPICS = "records|sites|smoothing|ranges|priors|surface|copies|parameters"


@pytest.mark.parametrize("name", ALL)
def test_each_name_is_explained_in_its_row_or_in_the_shared_tables(name: str) -> None:
    for part, heading in zip(table(name), ("Data", "Output"), strict=True):
        for names, rest in rows(part):
            if re.match(rf"({TOPICS})\b", rest):
                assert set(names) <= shared(heading)
            else:
                assert ":" in rest
                assert not set(names) & shared(heading)


def test_the_readme_opens_with_what_the_models_of_the_paper_say_in_stan() -> None:
    opening = README.split("\n## ", 1)[0].replace("\\|", "|")
    for name in ("hier", "restrict"):
        text = opening.split(f"| `reference/{name}.stan` |\n", 1)[1].split("\n\n", 1)[0]
        quoted = re.findall(r"`(target \+= [^`]*;)`", text)
        assert len(quoted) == 2
        model = "".join(block(f"reference/{name}", "model").split())
        for line in quoted:
            assert "".join(line.split()) in model
    assert opening.index("reference/hier.stan") < opening.index("The fast programs")


@pytest.mark.parametrize("name", [n for n in ALL if "A" in declared(n, "data")])
def test_files_with_weights_hold_fully_smoothed_records(name: str) -> None:
    A = np.array(data_of(name)["A"])
    assert np.sum(A == 0.0) == 2
    assert np.sum(A == 1.0) == A.size - 2


def test_the_script_makes_the_files_that_are_there() -> None:
    made = maker()
    for name, data in made.all_data().items():
        fresh = json.loads(made.text(data))
        kept = data_of(name)
        assert fresh.keys() == kept.keys()
        for key in fresh:
            np.testing.assert_allclose(kept[key], fresh[key], rtol=0, atol=BYTES_OF_LAPACK)


@pytest.mark.parametrize("name", ALL)
def test_the_embedded_engine_samples_from_the_file(name: str) -> None:
    missing = EmbeddedEngine.missing()
    if missing is not None:
        leave_out(missing)
    data = data_of(name)
    init: dict[str, Any] = {
        "beta": [2.0, 0.5],
        "sigma_sq": 1.0,
        "tau_sq": 0.1,
        "phi": 6.0,
        "phi_free": [] if data.get("phi_lower") == data.get("phi_upper") else [6.0],
        "w": [0.0] * data.get("n_sites", 0),
        "z": [0.0] * data.get("n_sites", 0),
        "root": [1.0, 1.0],
        "angle": [1.2, 1.2],
        "L": [[1.0, 0.0], [0.0, 1.0]],
        "whitened": [0.1] * 5,
        "size": 5.0,
    }
    settings = SamplerSettings(chains=1, warmup=ITERATIONS, samples=ITERATIONS)
    draws = EmbeddedEngine().sample(
        Program(name),
        data,
        settings=settings,
        seed=1,
        inits=[{key: init[key] for key in declared(name, "parameters")}],
    )
    assert draws.values.shape[:2] == (1, ITERATIONS)
    assert np.all(np.isfinite(draws.values))
    generated = declared(name, "transformed parameters", "generated quantities")
    for quantity in declared(name, "parameters") + generated:
        switched_off = quantity in ("w", "y_synthetic") and data.get("draw_latent") == 0
        switched_off |= quantity == "phi_free" and init["phi_free"] == []
        assert any(n.split("[")[0] == quantity for n in draws.names) != switched_off


def compiled(name: str) -> str:
    """Commands that put the cache's compiled program where `make` finds it up to date."""
    built = CmdStanEngine().executable(Program(name))
    target = f'"$RUN/{name}"'
    lines = [f"cp {built.with_suffix('.hpp')} {target}.hpp", f"cp {built} {target}"]
    return "\n".join([f"touch {target}.stan", *lines, ""])


compiles = pytest.mark.nightly("compiles one more program")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "unrestricted" else compiles) for n in ALL]
)
def test_the_commands_run_as_written(name: str, cmdstan_home: Path, tmp_path: Path) -> None:
    """By day with the cache's compiled program; at night `make` compiles the first one anew."""
    (before,) = fences(section("How to run one"), "bash")
    (commands,) = fences(section(name), "bash")
    anew = name == "unrestricted" and NIGHTLY
    there = "" if anew else compiled(name)
    script = (before + there + commands).replace("/path/to/cmdstan", str(cmdstan_home))
    script = script.replace("/path/to/dsstan", str(ROOT))
    env = {**os.environ, "HOME": str(tmp_path)}
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], env=env, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    if name == "unrestricted":
        (reading,) = fences(section("How to run one"), "python")
        shown = subprocess.run(
            [sys.executable, "-c", reading], env=env, capture_output=True, text=True
        )
        assert shown.returncode == 0, shown.stderr
        assert "4000" in shown.stdout
        assert "divergent: " in shown.stdout
    written = list((tmp_path / "dsstan-run").glob(f"{Path(name).name}*.csv"))
    assert len(written) == (4 if "num_chains=4" in commands else 1)
    for file in written:
        lines = file.read_text(encoding="utf-8").splitlines()
        columns = next(line for line in lines if not line.startswith("#")).split(",")
        sampled = {"sigma_sq", "tau_sq"} & set(declared(name, "parameters"))
        variances = {"sigma_sq.1", "tau_sq.1"} if name == "multivariate" else sampled
        assert {"beta.1", "beta.2", *variances} < set(columns)
