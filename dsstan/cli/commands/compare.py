"""The command ``dsstan compare``: risk against utility over a grid of settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table

from dsstan.cli.dry_run import plan_comparison
from dsstan.cli.options import Run, Source, takes
from dsstan.cli.phases import phases
from dsstan.cli.screens import out, say
from dsstan.cli.session import SESSION, document, emit
from dsstan.comparison.frontier import Frontier, compare
from dsstan.copies.options import COPIES, PROTECT, RUN, ReleaseOptions, option
from dsstan.core.errors import InputError
from dsstan.core.progress import phase
from dsstan.core.workspace import write_private
from dsstan.covariance.approximations import choose_covariance
from dsstan.covariance.protection import PROTECTIONS
from dsstan.release.pictures.plots import plot_frontier, save
from dsstan.risk.assessment import check_floor


@dataclass(frozen=True, kw_only=True)
class Grid:
    """What is compared, and where the comparison is kept."""

    out_folder: Path = option(
        ...,
        "Confidential folder for table, picture and finished settings; a second run with "
        "the same one goes on.",
        COPIES,
        flags=("--out",),
    )
    threshold: list[float] | None = option(None, "M; give it once for each value.", PROTECT)
    correlation: list[float] | None = option(
        None, "c; give it once for each value. With neither, c = 0.20.", PROTECT
    )
    continuous: bool = option(False, "Also the paper's continuous weights.", PROTECT)
    gamma: list[float] | None = option(None, "Once for each value; inf if left out.", PROTECT)
    protection: list[str] | None = option(
        None,
        f"Once for each of {', '.join(PROTECTIONS)}; all if left out.",
        PROTECT,
        choices=PROTECTIONS,
    )
    copies: list[int] | None = option(None, "L, once for each; 20.", COPIES)
    floor: float | None = option(None, "Least sd to leave to an intruder, drawn as a line.", COPIES)
    workers: int = option(1, "Settings judged at a time.", RUN)

    def check_folder(self) -> None:
        """Refuse a folder that holds anything but a comparison."""
        folder = self.out_folder
        ours = (folder / "run.json").is_file()
        if folder.is_dir() and any(folder.iterdir()) and not ours:
            raise InputError(f"{folder} holds other files: choose another folder")

    @property
    def arguments(self) -> dict[str, Any]:
        """What :func:`dsstan.compare` is given of it."""
        return {
            "distances": self.threshold or (),
            "correlations": self.correlation or (),
            "continuous": self.continuous,
            "gammas": self.gamma or (float("inf"),),
            "protections": self.protection or PROTECTIONS,
            "copies": self.copies or (20,),
            "workers": self.workers,
        }


@takes(
    "table formula coords out_folder crs distance threshold correlation continuous gamma "
    "protection copies floor seed workers engine cov_model covariance neighbours phi_bounds "
    "workdir chains warmup samples dry_run as_json"
)
def compare_command(source: Source, grid: Grid, options: ReleaseOptions, how: Run) -> None:
    """Judge a grid of settings by risk and utility."""
    check_floor(grid.floor)
    if grid.floor is not None and not choose_covariance(options.covariance, 0).has_attacker:
        raise InputError(
            f"--floor is compared with an intruder's sd, which --covariance {options.covariance} "
            "does not have: leave the floor out, or take --covariance vecchia"
        )
    grid.check_folder()
    folder, floor = grid.out_folder, grid.floor
    if how.dry_run:
        with phases(("reading", "rehearsal")):
            table = source.read(options.coords)
            plan = plan_comparison(table, source.formula, options, grid.arguments, folder=folder)
        plan.show("compare", as_json=how.as_json)
        return
    with phases(("reading", "unrestricted fit", "settings", "writing")):
        problem = options.prepare(source.read(options.coords), source.formula)
        SESSION.resumable = folder
        # Kept settings are found by all arguments of their fits: no more than are asked for.
        asked = "cov_model covariance priors engine seed chains warmup samples"
        fits = {name: getattr(options, name) for name in asked.split()}
        found = compare(problem, folder=folder, **grid.arguments, **fits)
        with phase("writing"):
            _write(found, folder, floor)
    if how.as_json:
        emit(_document(found, folder, floor))
    else:
        _show(found, floor)
        say(f"Keep to yourself: {folder.absolute()} (frontier.csv, frontier.png)")


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
        "Smallest sd of them, and of all records, for an intruder who knows all others and the "
        "variances (modelled scale); near: share of the copies of those at risk within 10% of "
        "the truth; overlap of the regression's intervals; correlation of the predicted surfaces. "
        f"* no other setting with this L is better in {by} and overlap, ties within Monte Carlo "
        "error"
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
