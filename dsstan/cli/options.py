"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from dsstan.core.workspace import temporaries, work_parent
from dsstan.covariance.approximations import COVARIANCES
from dsstan.covariance.correlation import CORRELATIONS
from dsstan.covariance.protection import PROTECTIONS
from dsstan.engines import ENGINES
from dsstan.release.write import FORMATS
from dsstan.table.cells import CSV_TEXT
from dsstan.table.coordinates import DISTANCES
from dsstan.table.problem import MISSING
from dsstan.table.rounding import ROUNDINGS

TEMPORARIES = ExitStack()

ENGINE_NAMES = ("auto", *ENGINES)

GROUPS = (
    "Table and model",
    "Protection",
    "Copies and what they disclose",
    "Sampler",
    "This run",
)
"""Groups of options, in the help and in a job file."""

MODEL, PROTECT, COPIES, SAMPLER, RUN = GROUPS


def work_in(folder: Path | None) -> Path | None:
    """Keep all temporary files of this command in a private folder."""
    if folder is not None:
        os.environ["DSSTAN_WORKDIR"] = str(work_parent(folder))
    TEMPORARIES.enter_context(temporaries())
    return folder


def among(*words: str) -> Callable[[str], list[str]]:
    """What a shell may complete a value to; a wrong one is still refused by dsstan itself."""

    def complete(incomplete: str) -> list[str]:
        return [word for word in words if word.startswith(incomplete)]

    return complete


TableFile = Annotated[
    Path, typer.Argument(metavar="TABLE", help="CSV or Parquet file with the confidential table.")
]
Formula = Annotated[
    str,
    typer.Option(
        help="Such as 'log(price) ~ scale(log(squarefeet))'.",
        rich_help_panel=MODEL,
    ),
]
Coords = Annotated[
    tuple[str, str],
    typer.Option(
        metavar="X Y",
        help="The two coordinate columns, x or longitude first, with a space.",
        rich_help_panel=MODEL,
    ),
]
Crs = Annotated[
    str | None,
    typer.Option(
        help="Coordinate reference system, e.g. EPSG:4326.",
        rich_help_panel=MODEL,
    ),
]
Distance = Annotated[
    str | None,
    typer.Option(
        help="planar, degrees or projected; a must for longitudes.",
        autocompletion=among(*DISTANCES),
        rich_help_panel=MODEL,
    ),
]
CovModel = Annotated[
    str,
    typer.Option(
        help="Correlation function: " + ", ".join(CORRELATIONS) + ".",
        autocompletion=among(*CORRELATIONS),
        rich_help_panel=MODEL,
    ),
]
CovarianceOf = Annotated[
    str,
    typer.Option(
        "--covariance",
        help="Covariance: "
        + ", ".join(COVARIANCES)
        + ". auto is exact up to 2000 records, then Vecchia's approximation.",
        autocompletion=among(*COVARIANCES),
        rich_help_panel=MODEL,
    ),
]
Neighbours = Annotated[
    int | None,
    typer.Option(
        help="Neighbours a record in Vecchia's approximation, by default 15.",
        rich_help_panel=MODEL,
    ),
]
PhiBounds = Annotated[
    tuple[float, float] | None,
    typer.Option(
        metavar="LOW HIGH",
        help="Prior range of the decay, inverse of the unit.",
        rich_help_panel=MODEL,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Root seed; a fresh one of 128 bits if left out.",
        rich_help_panel=SAMPLER,
    ),
]
Chains = Annotated[int, typer.Option(help="Chains of the sampler.", rich_help_panel=SAMPLER)]
Warmup = Annotated[int, typer.Option(help="Warm-up iterations a chain.", rich_help_panel=SAMPLER)]
Samples = Annotated[int, typer.Option(help="Kept iterations a chain.", rich_help_panel=SAMPLER)]
Engine = Annotated[
    str,
    typer.Option(
        help="auto, cmdstan or embedded.",
        autocompletion=among(*ENGINE_NAMES),
        rich_help_panel=SAMPLER,
    ),
]
WorkDir = Annotated[
    Path | None,
    typer.Option(
        callback=work_in,
        help="Where the private folder of temporary files is made; as DSSTAN_WORKDIR.",
        rich_help_panel=RUN,
    ),
]
OutFolder = Annotated[
    Path,
    typer.Option("--out", help="Release folder; must not exist.", rich_help_panel=COPIES),
]
CopiesOf = Annotated[int, typer.Option(help="L, the number of copies.", rich_help_panel=COPIES)]
Threshold = Annotated[
    float | None,
    typer.Option(
        help="M: flag records with no neighbour nearer than this distance.",
        rich_help_panel=PROTECT,
    ),
]
Correlation = Annotated[
    float | None,
    typer.Option(
        help="c: flag where the neighbour's correlation is at most this (0.20).",
        rich_help_panel=PROTECT,
    ),
]
Neighbour = Annotated[
    int, typer.Option(help="Look at the k-th nearest neighbour.", rich_help_panel=PROTECT)
]
Gamma = Annotated[
    float, typer.Option(help="Global risk parameter, 0 to inf.", rich_help_panel=PROTECT)
]
Protection = Annotated[
    str,
    typer.Option(
        help=", ".join(PROTECTIONS) + ".",
        autocompletion=among(*PROTECTIONS),
        rich_help_panel=PROTECT,
    ),
]
Format = Annotated[
    str,
    typer.Option(
        help="Of the copies: csv or parquet.",
        autocompletion=among(*FORMATS),
        rich_help_panel=COPIES,
    ),
]
Absolute = Annotated[
    float | None,
    typer.Option(
        help="Also count copies within this distance of the truth, response's unit.",
        rich_help_panel=COPIES,
    ),
]
AdaptDelta = Annotated[
    float, typer.Option(help="Acceptance the sampler aims at.", rich_help_panel=SAMPLER)
]
AcceptFailed = Annotated[
    bool,
    typer.Option(
        "--accept-failed",
        help="Go on although a fit failed its verdict.",
        rich_help_panel=SAMPLER,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Stop at a verdict's warnings too.",
        rich_help_panel=SAMPLER,
    ),
]
RoundingOf = Annotated[
    str,
    typer.Option(
        help="auto: round the copies like the input; none: all digits.",
        autocompletion=among(*ROUNDINGS),
        rich_help_panel=COPIES,
    ),
]
Missing = Annotated[
    str,
    typer.Option(
        help="A response that is missing: refuse, or draw it with the model.",
        autocompletion=among(*MISSING),
        rich_help_panel=MODEL,
    ),
]
Imputations = Annotated[
    int | None,
    typer.Option(
        help="M, how often a missing response is drawn (5); L / M copies of each.",
        rich_help_panel=COPIES,
    ),
]
CsvText = Annotated[
    str,
    typer.Option(
        help="Text that a spreadsheet would run: refuse, quote or keep.",
        autocompletion=among(*CSV_TEXT),
        rich_help_panel=COPIES,
    ),
]
Floor = Annotated[
    float | None,
    typer.Option(
        help="Least sd to leave to an intruder about every record, modelled scale; a release "
        "that leaves less is refused.",
        rich_help_panel=COPIES,
    ),
]
AcceptBelowFloor = Annotated[
    bool,
    typer.Option(
        "--accept-below-floor",
        help="Go on although the floor is missed.",
        rich_help_panel=COPIES,
    ),
]
NoReport = Annotated[
    bool,
    typer.Option(
        "--no-report",
        help="Leave out report.html and factsheet.html.",
        rich_help_panel=COPIES,
    ),
]
ByRowGroups = Annotated[
    bool,
    typer.Option(
        "--by-row-groups",
        help="TABLE is Parquet, a file or a folder, larger than memory: read only the needed "
        "columns, a row group at a time; needs --format parquet.",
        rich_help_panel=MODEL,
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Check everything, estimate time and memory, write nothing.",
        rich_help_panel=RUN,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        help="One JSON document on standard output, and nothing else there.",
        rich_help_panel=RUN,
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Print posteriors, shares, intruder and regression in full.",
        rich_help_panel=RUN,
    ),
]
