"""Options that several commands share."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from dsstan.workspace import temporaries, work_parent

TEMPORARIES = ExitStack()


def work_in(folder: Path | None) -> Path | None:
    """Keep all temporary files of this command in a private folder."""
    if folder is not None:
        os.environ["DSSTAN_WORKDIR"] = str(work_parent(folder))
    TEMPORARIES.enter_context(temporaries())
    return folder


Engine = Annotated[str, typer.Option(help="auto, cmdstan or embedded.")]
WorkDir = Annotated[
    Path | None,
    typer.Option(
        callback=work_in,
        help="Where the private folder of temporary files is made; as DSSTAN_WORKDIR.",
    ),
]
