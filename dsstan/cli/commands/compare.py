"""The command ``dsstan compare``: risk against utility over a grid of settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import typer
from rich.markup import escape
from rich.table import Table

from dsstan.cli.dry_run import plan_comparison
from dsstan.cli.options import (
    COPIES,
    PROTECT,
    RUN,
    AsJson,
    Chains,
    Coords,
    CovarianceOf,
    CovModel,
    Crs,
    Distance,
    DryRun,
    Engine,
    Formula,
    Neighbours,
    PhiBounds,
    Samples,
    Seed,
    TableFile,
    Warmup,
    WorkDir,
    among,
)
from dsstan.cli.phases import phases
from dsstan.cli.screens import out, say
from dsstan.cli.session import SESSION, document, emit
from dsstan.comparison.frontier import Frontier, compare
from dsstan.core.errors import InputError
from dsstan.core.progress import phase
from dsstan.core.workspace import write_private
from dsstan.covariance.approximations import choose_covariance, covariance_of
from dsstan.covariance.protection import PROTECTIONS
from dsstan.models.priors import Priors
from dsstan.release.pictures.plots import plot_frontier, save
from dsstan.release.reading import needed_columns, read_table
from dsstan.risk.assessment import check_floor
from dsstan.table.problem import prepare


def compare_command(
    table: TableFile,
    formula: Formula,
    coords: Coords,
    out_folder: Annotated[
        Path,
        typer.Option(
            "--out",
            help="Confidential folder for table, picture and finished settings; a second run with "
            "the same one goes on.",
            rich_help_panel=COPIES,
        ),
    ],
    crs: Crs = None,
    distance: Distance = None,
    threshold: Annotated[
        list[float] | None,
        typer.Option(help="M; give it once for each value.", rich_help_panel=PROTECT),
    ] = None,
    correlation: Annotated[
        list[float] | None,
        typer.Option(
            help="c; give it once for each value. With neither, c = 0.20.", rich_help_panel=PROTECT
        ),
    ] = None,
    continuous: Annotated[
        bool,
        typer.Option(
            "--continuous", help="Also the paper's continuous weights.", rich_help_panel=PROTECT
        ),
    ] = False,
    gamma: Annotated[
        list[float] | None,
        typer.Option(help="Once for each value; inf if left out.", rich_help_panel=PROTECT),
    ] = None,
    protection: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Once for each of {', '.join(PROTECTIONS)}; all if left out.",
            autocompletion=among(*PROTECTIONS),
            rich_help_panel=PROTECT,
        ),
    ] = None,
    copies: Annotated[
        list[int] | None, typer.Option(help="L, once for each; 20.", rich_help_panel=COPIES)
    ] = None,
    floor: Annotated[
        float | None,
        typer.Option(
            help="Least sd to leave to an intruder, drawn as a line.", rich_help_panel=COPIES
        ),
    ] = None,
    seed: Seed = None,
    workers: Annotated[
        int, typer.Option(help="Settings judged at a time.", rich_help_panel=RUN)
    ] = 1,
    engine: Engine = "auto",
    cov_model: CovModel = "exponential",
    covariance: CovarianceOf = "auto",
    neighbours: Neighbours = None,
    phi_bounds: PhiBounds = None,
    workdir: WorkDir = None,
    chains: Chains = 4,
    warmup: Warmup = 1000,
    samples: Samples = 1000,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Judge a grid of settings by risk and utility."""
    check_floor(floor)
    chosen = covariance_of(covariance, neighbours)
    if floor is not None and not choose_covariance(chosen, 0).has_attacker:
        raise InputError(
            f"--floor is compared with an intruder's sd, which --covariance {covariance} does not "
            "have: leave the floor out, or take --covariance vecchia"
        )
    ours = (out_folder / "run.json").is_file()
    if out_folder.is_dir() and any(out_folder.iterdir()) and not ours:
        raise InputError(f"{out_folder} holds other files: choose another folder")
    grid: dict[str, Any] = {
        "distances": threshold or (),
        "correlations": correlation or (),
        "continuous": continuous,
        "gammas": gamma or (float("inf"),),
        "protections": protection or PROTECTIONS,
        "copies": copies or (20,),
        "workers": workers,
    }
    place: dict[str, Any] = {"coords": coords, "crs": crs, "distance": distance, "name": table.stem}
    sampler = {"chains": chains, "warmup": warmup, "samples": samples}
    fits: dict[str, Any] = {
        "priors": None if phi_bounds is None else Priors(phi_bounds=phi_bounds),
        "cov_model": cov_model,
        "covariance": chosen,
        "engine": engine,
        "seed": seed,
        **sampler,
    }
    with phases(
        ("reading", "rehearsal")
        if dry_run
        else ("reading", "unrestricted fit", "settings", "writing")
    ):
        with phase("reading"):
            content = read_table(table, needed_columns(formula, coords))
        if dry_run:
            plan = plan_comparison(content, formula, {**place, **fits}, grid, folder=out_folder)
        else:
            problem = prepare(content, formula, **place)
            SESSION.resumable = out_folder
            found = compare(problem, folder=out_folder, **grid, **fits)
            with phase("writing"):
                _write(found, out_folder, floor)
    if dry_run:
        plan.show("compare", as_json=as_json)
    elif as_json:
        emit(_document(found, out_folder, floor))
    else:
        _show(found, floor)
        say(f"Keep to yourself: {out_folder.absolute()} (frontier.csv, frontier.png)")


def _document(found: Frontier, folder: Path, floor: float | None) -> dict[str, Any]:
    """The grid as one document: the rows of ``frontier.csv``, and which no other beats."""
    best = _best(found)
    rows = [
        {**row, "best": (row["setting"], row["copies"]) in best}
        for row in found.table.to_dict("records")
    ]
    for row in rows:
        row["gamma"] = "infinity" if row["gamma"] == float("inf") else row["gamma"]
    place = folder.absolute()
    picture = place / "frontier.png"
    return document(
        "compare",
        confidential=True,
        dry_run=False,
        paths={
            "folder": place,
            "table": place / "frontier.csv",
            "picture": picture if picture.is_file() else None,
        },
        records_at_risk=int(found.at_risk.sum()),
        floor=floor,
        settings=rows,
        failed=found.failed,
        computed=found.computed,
        seconds=found.seconds,
    )


def _best(found: Frontier) -> set[tuple[str, int]]:
    """Settings, with their L, that no other of the same L beats."""
    if not found.at_risk.any():
        return set()
    return {(r["setting"], r["copies"]) for r in found.best().to_dict("records")}


def _write(found: Frontier, folder: Path, floor: float | None) -> None:
    """Table and picture, for their owner alone."""
    write_private(folder / "frontier.csv", found.table.to_csv(index=False).encode())
    if found.at_risk.any():
        save(plot_frontier(found, floor=floor), folder / "frontier.png")


def _show(found: Frontier, floor: float | None) -> None:
    """The settings in the order of the grid; those that no other beats are marked."""
    best = _best(found)
    table = Table(
        "setting", "L", "flagged", "least sd", "of all", "near", "overlap", "surface", box=None
    )
    for row in found.table.to_dict("records"):
        mark = "*" if (row["setting"], row["copies"]) in best else ""
        poor = "" if row["passed"] else " (verdict failed)"
        numbers = ("sd_at_risk_known", "sd_all", "share_at_risk", "overlap", "surface")
        cells = [escape(f"{row['setting']}{poor} {mark}"), str(row["copies"]), str(row["flagged"])]
        for name in numbers:
            cells.append("-" if pd.isna(row[name]) else f"{row[name]:.2g}")
        table.add_row(*cells)
    out.print(table)
    by = "least sd" if found.usual_risk.startswith("sd") else "near"
    out.print(
        f"{int(found.at_risk.sum())} records at risk, those that any rule of this grid flags. "
        "Least sd of them, and of all records, left to one who knows all others and the variances "
        "(modelled scale); near: share of the copies of those at risk within 10% of the truth; "
        "overlap of the regression's intervals; correlation of the predicted surfaces. * no other "
        f"setting with this L is better in {by} and overlap, ties within Monte Carlo error"
    )
    left_out = found.table["left_out"].max()
    if left_out > 0:
        out.print(
            "The sds come from the records around each, and may be too large by "
            f"{100 * left_out:.2g}%: a floor is compared with sds smaller by that much"
        )
    if floor is not None:
        for words, column in (("every record", "sd_all"), ("those at risk", "sd_at_risk_known")):
            surely = found.table[column].fillna(0.0) / (1.0 + found.table["left_out"])
            good = found.table[surely >= floor].to_dict("records")
            names = ", ".join(f"{r['setting']} (L = {r['copies']})" for r in good)
            say(f"Leave at least {floor:g} to {words}: {names or 'none'}")
    for name, reason in found.failed.items():
        say(f"{name} could not be judged: {reason}", "yellow")
