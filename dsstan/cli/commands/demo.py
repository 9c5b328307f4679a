"""The command ``dsstan demo``: the worked examples."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from dsstan.cli.examples import EXAMPLES, DemoResult, run_example
from dsstan.cli.options import AsJson, Engine, WorkDir, among
from dsstan.cli.phases import RELEASE_PHASES, phases
from dsstan.cli.print_release import summary_of
from dsstan.cli.screens import out, say, show_demo
from dsstan.cli.session import SESSION, document, emit
from dsstan.core.errors import DsstanError, InputError
from dsstan.release.whole_folder import check_target


def demo_command(
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for the releases; made if need be.")
    ],
    dataset: Annotated[
        str,
        typer.Option(
            help=", ".join(EXAMPLES) + ", or all.", autocompletion=among(*EXAMPLES, "all")
        ),
    ] = "simulated",
    copies: Annotated[int, typer.Option(help="L, the number of copies.")] = 20,
    seed: Annotated[int | None, typer.Option(help="Root seed; a fresh one if left out.")] = None,
    engine: Engine = "auto",
    workdir: WorkDir = None,
    as_json: AsJson = False,
) -> None:
    """Run the worked examples, before and after protection."""
    names = list(EXAMPLES) if dataset == "all" else [dataset]
    for name in names:
        if name not in EXAMPLES:
            raise InputError(
                f"there is no example {name!r}; choose from {', '.join(EXAMPLES)} or all"
            )
        check_target(out_folder / name if out_folder.is_dir() else out_folder.absolute())
    out_folder.mkdir(parents=True, exist_ok=True)
    done, left_out = {}, {}
    for name in names:
        out.rule(f"[bold]{name}")
        SESSION.targets.append((out_folder / name).absolute())
        try:
            with phases(RELEASE_PHASES[1:]):
                result = run_example(
                    name, out_folder / name, copies=copies, seed=seed, engine=engine
                )
        except DsstanError as error:
            if dataset != "all" or name != "san-francisco":
                with suppress(OSError):
                    out_folder.rmdir()  # only an empty one
                raise
            left_out[name] = str(error)
            say(f"Left out: {error}")
            continue
        done[name] = _outcome(result)
        show_demo(result)
    if as_json:
        emit(document("demo", confidential=True, examples=done, left_out=left_out))


def _outcome(result: DemoResult) -> dict[str, Any]:
    """One example for JSON."""
    return {
        "paths": {
            "release": result.folder,
            "report": result.folder / "confidential" / "report.html",
            "pictures": list(result.pictures),
        },
        "summary": summary_of(result.folder),
    }
