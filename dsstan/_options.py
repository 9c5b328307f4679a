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


TableFile = Annotated[
    Path, typer.Argument(metavar="TABLE", help="CSV or Parquet file with the confidential table.")
]
Formula = Annotated[str, typer.Option(help="Such as 'log(price) ~ scale(log(squarefeet))'.")]
Coords = Annotated[
    tuple[str, str],
    typer.Option(
        metavar="X Y", help="The two coordinate columns, x or longitude first, with a space."
    ),
]
Crs = Annotated[str | None, typer.Option(help="Coordinate reference system, e.g. EPSG:4326.")]
Distance = Annotated[
    str | None, typer.Option(help="planar, degrees or projected; a must for longitudes.")
]
Seed = Annotated[int | None, typer.Option(help="Root seed; a fresh one of 128 bits if left out.")]
PhiBounds = Annotated[
    tuple[float, float] | None,
    typer.Option(metavar="LOW HIGH", help="Prior range of the decay, inverse of the unit."),
]
Chains = Annotated[int, typer.Option(help="Chains of the sampler.")]
Warmup = Annotated[int, typer.Option(help="Warm-up iterations a chain.")]
Samples = Annotated[int, typer.Option(help="Kept iterations a chain.")]
Engine = Annotated[str, typer.Option(help="auto, cmdstan or embedded.")]
WorkDir = Annotated[
    Path | None,
    typer.Option(
        callback=work_in,
        help="Where the private folder of temporary files is made; as DSSTAN_WORKDIR.",
    ),
]
