"""The command ``dsstan compare``: risk against utility over a grid of settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dsstan.cli.comparison_screen import best_settings, comparison_screen
from dsstan.cli.dry_run.planning import plan_comparison
from dsstan.cli.options import Run, Source, takes
from dsstan.cli.phases import phases
from dsstan.cli.screens import say, show_lines
from dsstan.cli.session import SESSION, document, emit
from dsstan.comparison.frontier import compare
from dsstan.comparison.frontier_result import Frontier
from dsstan.copies.option_fields import COPIES, PROTECT, RUN, option
from dsstan.copies.options import ReleaseOptions
from dsstan.core.errors import InputError
from dsstan.core.files.workspace import write_private
from dsstan.core.progress import phase
from dsstan.covariance.approximations import choose_covariance
from dsstan.covariance.protection import PROTECTIONS
from dsstan.release.pictures.plots import plot_frontier, save
from dsstan.risk.floors import FloorLike, as_floor


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
    floor: FloorLike | None = option(
        None,
        "What to leave to an intruder, 10% or a least sd, drawn as a line.",
        COPIES,
        typed=str | None,
        free_form=True,
    )
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
    "table formula coords out_folder sep decimal thousands encoding na layer crs distance "
    "survey_weights household "
    "threshold correlation continuous gamma protection copies floor seed workers engine cov_model "
    "covariance neighbours phi_bounds decay time time_decay group_share workdir ledger chains "
    "warmup samples dry_run as_json"
)
def compare_command(source: Source, grid: Grid, options: ReleaseOptions, how: Run) -> None:
    """Judge a grid of settings by risk and utility."""
    asked = as_floor(grid.floor)
    if asked is not None and not choose_covariance(options.covariance, 0).has_attacker:
        raise InputError(
            f"--floor is compared with an intruder's sd, which --covariance {options.covariance} "
            "does not have: leave the floor out, or take --covariance vecchia"
        )
    if options.engine == "auto":
        options = replace(options, engine="direct")  # as compare() takes it
    grid.check_folder()
    folder = grid.out_folder
    if how.dry_run:
        with phases(("reading", "rehearsal")):
            table = source.read(options)
            plan = plan_comparison(table, source.formula, options, grid.arguments, folder=folder)
        plan.show("compare", as_json=how.as_json)
        return
    with phases(("reading", "unrestricted fit", "settings", "writing")):
        problem = options.prepare(source.read(options), source.formula)
        # What is enough for the record that needs most is enough for all.
        floor = None if asked is None else float(asked.least_sd(problem).max())
        SESSION.resumable = folder
        # Kept settings are found by all arguments of their fits: no more than are asked for.
        names = "cov_model covariance priors engine seed chains"
        fits = {name: getattr(options, name) for name in names.split()}
        fits |= {name: getattr(options.sampler, name) for name in ("warmup", "samples")}
        held = {name: getattr(options, name) for name in ("time_decay", "group_share")}
        fits |= {name: value for name, value in held.items() if value is not None}
        found = compare(problem, folder=folder, **grid.arguments, **fits)
        with phase("writing"):
            _write(found, folder, floor)
    if how.as_json:
        emit(_document(found, folder, floor))
    else:
        show_lines(comparison_screen(found, None if asked is None else str(asked), floor))
        say(f"Keep to yourself: {folder.absolute()} (frontier.csv, frontier.png)")


def _document(found: Frontier, folder: Path, floor: float | None) -> dict[str, Any]:
    """The grid as one document: the rows of ``frontier.csv``, and which no other beats."""
    best = best_settings(found)
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


def _write(found: Frontier, folder: Path, floor: float | None) -> None:
    """Table and picture, for their owner alone."""
    write_private(folder / "frontier.csv", found.table.to_csv(index=False).encode())
    if found.at_risk.any():
        save(plot_frontier(found, floor=floor), folder / "frontier.png")
