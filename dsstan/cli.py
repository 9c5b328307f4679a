"""The command line: ``dsstan synthesise``, ``dsstan demo``, ``dsstan doctor``."""

from __future__ import annotations

import signal
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dsstan.demo import EXAMPLES, DemoResult, outlier, run_example
from dsstan.disclosure import disclosure, reduction_text
from dsstan.doctor import examine
from dsstan.errors import ConvergenceError, DsstanError, DsstanWarning, InputError, ReleaseError
from dsstan.fit import PROTECTIONS
from dsstan.priors import Priors
from dsstan.protect import protect
from dsstan.release import FORMATS, check_target, write_release
from dsstan.synthesis import Synthesis
from dsstan.utility import utility

EXIT_INPUT, EXIT_CONVERGENCE, EXIT_RELEASE, EXIT_OTHER = 2, 3, 4, 1

app = typer.Typer(
    help="Publish exact locations without publishing people: synthetic copies of a geocoded "
    "table, with the risk and the use of them measured.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
out = Console()
if not out.is_terminal:
    out = Console(width=110)
err = Console(stderr=True)

Engine = Annotated[str, typer.Option(help="auto, cmdstan or embedded.")]


@app.command()
def synthesise(
    table: Annotated[
        Path,
        typer.Argument(metavar="TABLE", help="CSV or Parquet file with the confidential table."),
    ],
    formula: Annotated[str, typer.Option(help="Such as 'log(price) ~ scale(log(squarefeet))'.")],
    coords: Annotated[
        tuple[str, str],
        typer.Option(
            metavar="X Y", help="The two coordinate columns, x or longitude first, with a space."
        ),
    ],
    out_folder: Annotated[Path, typer.Option("--out", help="Release folder; must not exist.")],
    crs: Annotated[
        str | None, typer.Option(help="Coordinate reference system, e.g. EPSG:4326.")
    ] = None,
    distance: Annotated[
        str | None, typer.Option(help="planar, degrees or projected; a must for longitudes.")
    ] = None,
    copies: Annotated[int, typer.Option(help="L, the number of copies.")] = 20,
    seed: Annotated[
        int | None, typer.Option(help="Root seed; a fresh one of 128 bits if left out.")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="M: flag records with no neighbour nearer than this distance."),
    ] = None,
    correlation: Annotated[
        float | None,
        typer.Option(help="c: flag where the neighbour's correlation is at most this (0.20)."),
    ] = None,
    neighbour: Annotated[int, typer.Option(help="Look at the k-th nearest neighbour.")] = 1,
    gamma: Annotated[float, typer.Option(help="Global risk parameter, 0 to inf.")] = float("inf"),
    protection: Annotated[str, typer.Option(help=", ".join(PROTECTIONS) + ".")] = "paper",
    engine: Engine = "auto",
    format: Annotated[str, typer.Option(help="Of the copies: csv or parquet.")] = "csv",
    absolute: Annotated[
        float | None,
        typer.Option(help="Also count copies within this distance of the truth, response's unit."),
    ] = None,
    chains: Annotated[int, typer.Option(help="Chains of the sampler.")] = 4,
    warmup: Annotated[int, typer.Option(help="Warm-up iterations a chain.")] = 1000,
    samples: Annotated[int, typer.Option(help="Kept iterations a chain.")] = 1000,
    adapt_delta: Annotated[float, typer.Option(help="Acceptance the sampler aims at.")] = 0.9,
    phi_bounds: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Prior range of the decay, inverse of the unit."),
    ] = None,
    accept_failed: Annotated[
        bool, typer.Option("--accept-failed", help="Go on although a fit failed its verdict.")
    ] = False,
) -> None:
    """Make a release from a confidential table."""
    check_target(out_folder)
    if format not in FORMATS:
        raise InputError(f"--format must be csv or parquet, got {format!r}")
    release = protect(
        read_table(table),
        formula,
        coords=coords,
        distance=distance,
        crs=crs,
        name=table.stem,
        copies=copies,
        seed=seed,
        threshold=threshold,
        correlation=correlation,
        neighbour=neighbour,
        gamma=gamma,
        protection=protection,
        engine=engine,
        accept_failed=accept_failed,
        chains=chains,
        warmup=warmup,
        samples=samples,
        adapt_delta=adapt_delta,
        priors=None if phi_bounds is None else Priors(phi_bounds=phi_bounds),
    )
    target = write_release(release, out_folder, format=format, absolute=absolute)
    show_fits(release)
    _show_shares(disclosure(release, absolute=absolute))
    if release.copies > 1:
        _show_estimates(utility(release))
    _say(f"Copies to publish: {target / 'public'}")
    _say(f"Keep to yourself:  {target / 'confidential'}")


@app.command()
def demo(
    out_folder: Annotated[
        Path, typer.Option("--out", help="Folder for the releases; made if need be.")
    ],
    dataset: Annotated[str, typer.Option(help=", ".join(EXAMPLES) + ", or all.")] = "simulated",
    copies: Annotated[int, typer.Option(help="L, the number of copies.")] = 100,
    seed: Annotated[int, typer.Option(help="Root seed.")] = 20180,
    engine: Engine = "auto",
) -> None:
    """Run the worked examples and print them before and after protection."""
    names = list(EXAMPLES) if dataset == "all" else [dataset]
    for name in names:
        if name not in EXAMPLES:
            raise InputError(
                f"there is no example {name!r}; choose from {', '.join(EXAMPLES)} or all"
            )
        check_target(out_folder / name if out_folder.is_dir() else out_folder.absolute())
    out_folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        out.rule(f"[bold]{name}")
        try:
            result = run_example(name, out_folder / name, copies=copies, seed=seed, engine=engine)
        except DsstanError as error:
            if dataset != "all" or name != "san-francisco":
                with suppress(OSError):
                    out_folder.rmdir()  # only an empty one
                raise
            _say(f"Left out: {error}")
            continue
        show_demo(result)


@app.command()
def doctor() -> None:
    """Say what is on this machine, what is missing and how to get it."""
    table = Table("", "what", "found or how to get it", "needed for", box=None)
    for finding in examine():
        mark = "[green]there[/]" if finding.there else "[yellow]missing[/]"
        table.add_row(mark, finding.what, escape(finding.detail), finding.needed_for)
    out.print(table)


def read_table(path: Path) -> pd.DataFrame:
    """The table of a CSV or Parquet file.

    Raises
    ------
    InputError
        If there is no such file, its kind is unknown or it can't be read.
    """
    readers: dict[str, Any] = {
        ".csv": _read_csv,
        ".parquet": pd.read_parquet,
        ".pq": pd.read_parquet,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"{path.name} is neither .csv nor .parquet")
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        table: pd.DataFrame = reader(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path.name} can't be read as {path.suffix.lower()}: {type(error).__name__}"
        ) from None
    return table


def _read_csv(path: Path) -> pd.DataFrame:
    """A CSV file, its numbers to the last digit: copies repeat all columns but one."""
    with warnings.catch_warnings():
        # pandas 3.1 is exact by itself, and deprecates what older ones need.
        warnings.filterwarnings("ignore", "The 'float_precision'")
        return pd.read_csv(path, float_precision="round_trip")


def _say(text: str, style: str | None = None) -> None:
    """One line as it is: what stands in brackets, in a path or a term, is no markup."""
    out.print(escape(text), style=style, soft_wrap=True)


def show_fits(release: Synthesis) -> None:
    """Posterior before and after, and the verdicts."""
    fit = release.fit
    fits = {f.kind: f for f in (fit.start, fit) if f is not None}
    problem = release.problem
    out.print(
        f"{problem.n_records} records at {problem.n_sites} sites, "
        f"{int(fit.flagged.sum())} flagged; "
        f"protection {fit.protection}; engine {fit.engine}; copies {release.copies}, "
        f"carrying {release.effect}"
    )
    weights = fit.weights
    if weights is not None and np.isfinite(weights.threshold):
        farthest = ", ".join(f"{d:.4g}" for d in np.sort(weights.nearest)[::-1][:5])
        out.print(
            f"Flagged where no neighbour is nearer than M = {weights.threshold:.4g} {problem.unit} "
            f"(correlation {weights.correlation:.2g}); largest distances to a neighbour: {farthest}"
        )
    table = Table("posterior mean (95% interval)", *fits, box=None)
    summaries = {kind: f.summary() for kind, f in fits.items()}
    for name, row in next(iter(summaries.values())).iterrows():
        cells = []
        for kind, s in summaries.items():
            r = s.loc[str(name)]
            held = name == "phi" and fits[kind].phi_held is not None
            interval = "held" if held else f"{r['q025']:.3g}, {r['q975']:.3g}"
            cells.append(f"{r['mean']:.4g} ({interval})")
        term = f" ({row['term']})" if str(name).startswith("beta") else ""
        table.add_row(escape(f"{name}{term}"), *cells)
    out.print(table)
    for kind, f in fits.items():
        for check in (*f.verdict.failures, *f.verdict.warnings):
            _say(f"{kind} fit, {check}", "yellow")
        for note in f.notes:
            _say(f"{kind} fit, note: {note}", "yellow")
    out.print(
        f"Largest error of the interpolated log density: "
        f"{max(f.surface_error for f in fits.values()):.1g}"
    )


def _show_shares(risks: Any) -> None:
    """Shares of copies near the truth."""
    columns = [c for c in ("unrestricted", "restricted") if c in set(risks.summary["fit"])]
    table = Table("share of copies near the truth", *columns, "reduced by", box=None)
    labels = {"within_relative": f"within {100 * risks.relative:g}%"}
    if risks.absolute is not None:
        labels["within_absolute"] = f"within {risks.absolute:,g}"
    for measure, label in labels.items():
        for group in ("flagged", "unflagged"):
            shares = [risks.share(measure, c, group) for c in columns]
            if shares[0] is None:
                continue
            r = risks.reduction
            change = r[(r["measure"] == measure) & (r["group"] == group)]["percent"]
            table.add_row(
                f"{label}, {group}",
                *(f"{100 * s:.1f}%" for s in shares if s is not None),
                reduction_text(float(change.iloc[0])) if len(change) else "-",
            )
    out.print(table)


def _show_estimates(kept: Any) -> None:
    """The analyst's regression on the original and the copies."""
    sources = list(dict.fromkeys(kept.table["source"]))
    _say(f"Least squares {kept.formula}, estimate (95% interval)")
    table = Table("", *sources, box=None)
    for term in dict.fromkeys(kept.table["term"]):
        rows = [kept.get(source, term) for source in sources]
        table.add_row(
            escape(term), *(f"{r['estimate']:.3f} ({r['low']:.3f}, {r['high']:.3f})" for r in rows)
        )
    out.print(table)


def show_demo(result: DemoResult) -> None:
    """Everything a reader wants to see of one example."""
    release = result.release
    show_fits(release)
    _show_shares(result.risks)
    _show_estimates(result.kept)
    _show_outlier(release)
    _say(f"Release:  {result.folder}")
    if result.pictures:
        _say(f"Pictures: {result.pictures[0].parent}")


def _show_outlier(release: Synthesis) -> None:
    """The most isolated record, before and after."""
    record = outlier(release)
    problem = release.problem
    free = release.unprotected
    assert free is not None
    place = ", ".join(f"{v:g}" for v in problem.coords[record])
    table = Table(
        f"copies at the most isolated record ({place})", "mean", "sd", "2.5%, 97.5%", box=None
    )
    for s in (free, release):
        values = s.modelled()[:, record]
        low, high = pd.Series(values).quantile([0.025, 0.975])
        table.add_row(
            s.fit.kind,
            f"{values.mean():.2f}",
            f"{values.std(ddof=1):.2f}",
            f"{low:.2f}, {high:.2f}",
        )
    out.print(table)
    out.print(f"truth {problem.y[record]:.2f}, on the modelled scale ({problem.transform.name})")


def main() -> None:
    """Run the command line with plain errors and documented exit codes.

    Exit codes: 0 done; 1 another dsstan error; 2 wrong input; 3 a fit that must
    not reach synthesis; 4 a release that can't be written; 130 interrupted.
    """
    warnings.showwarning = _show_warning
    signal.signal(signal.SIGTERM, _terminate)
    try:
        app()
    except InputError as error:
        _fail(error, EXIT_INPUT)
    except ConvergenceError as error:
        _fail(error, EXIT_CONVERGENCE)
    except ReleaseError as error:
        _fail(error, EXIT_RELEASE)
    except DsstanError as error:
        _fail(error, EXIT_OTHER)


def _fail(error: DsstanError, code: int) -> None:
    err.print(f"[red]dsstan:[/] {escape(str(error))}", soft_wrap=True, highlight=False)
    sys.exit(code)


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leave by an exception, so that private folders are removed."""
    sys.exit(128 + number)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: Any = None,
    line: str | None = None,
) -> None:
    """Show the package's own warnings, without source lines."""
    if issubclass(category, DsstanWarning):
        text = escape(str(message))
        err.print(f"[yellow]warning:[/] {text}", soft_wrap=True, highlight=False)
