"""What the command line prints of a release."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dsstan.cli.examples import PUBLIC, DemoResult, outlier
from dsstan.cli.release_screen import placing_lines, release_screen, verdict_screen
from dsstan.cli.screen_lines import WIDTH, ScreenLine, table_lines
from dsstan.cli.session import as_text
from dsstan.copies.result import Synthesis
from dsstan.core.seeds import GUESSABLE_BITS
from dsstan.models.checks.conditions import short_seed
from dsstan.release.verdicts import NAMED, PAPER_SHARES, unmet
from dsstan.risk.assessment import Assessment
from dsstan.risk.disclosure import Disclosure, reduction_text

out = Console()
if not out.is_terminal:
    out = Console(width=110)


def say(text: str, style: str | None = None) -> None:
    """One line as it is: what stands in brackets, in a path or a term, is no markup.

    Signs that a terminal would obey, as the name of a file may hold, are shown as a box.
    """
    out.print(as_text(text).replace("\n", "\ufffd"), style=style, soft_wrap=True)


def say_wrapped(text: str, style: str | None = None) -> None:
    """Text in lines that end between words."""
    for line in textwrap.wrap(text, min(out.width, WIDTH), break_long_words=False):
        say(line, style)


def show_lines(lines: Iterable[ScreenLine]) -> None:
    """Lines of a screen in their colours."""
    for line in lines:
        say(line.text, line.style)


def show_head(release: Synthesis, found: Assessment, accepted: str | None = None) -> None:
    """FIT, DISCLOSURE, how near intruders get, what protection did and what keeps the floor."""
    show_lines(verdict_screen(release, found, accepted))
    show_lines(ScreenLine(text) for text in placing_lines(found))
    if len(unmet(release)) > NAMED:
        say_wrapped(f"Conditions not met: {', '.join(unmet(release))}", "yellow")
    if found.before is not None:
        say_wrapped(found.effect_of_protection())
    if found.reach:
        say_wrapped(found.reach[0].upper() + found.reach[1:])


def show_fits(release: Synthesis) -> None:
    """Posterior before and after, and the verdicts."""
    fit = release.fit
    fits = {k: f for k, f in release.fits.items() if not k.startswith("imputation")}
    problem = release.problem
    out.print(
        f"{problem.n_records} records at {problem.n_sites} sites, "
        f"{int(fit.flagged.sum())} flagged; "
        f"protection {release.protection}; engine {fit.engine}; copies {release.copies}, "
        f"carrying {release.effect}"
    )
    if problem.households is not None:
        say(str(problem.households))
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
        table.add_row(as_text(f"{name}{term}"), *cells)
    out.print(table)
    for kind, f in fits.items():
        for check in (*f.verdict.failures, *f.verdict.warnings):
            say(f"{kind} fit, {check}", "yellow")
        for note in f.notes:
            say(f"{kind} fit, note: {note}", "yellow")
    if release.seed_bits < GUESSABLE_BITS:
        say(str(short_seed(release.seed_bits)), "yellow")
    out.print(
        f"Largest error of the interpolated log density: "
        f"{max(f.surface_error for f in fits.values()):.1g}"
    )


def show_shares(risks: Disclosure) -> None:
    """The paper's shares of copies near the truth."""
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
            table.add_row(
                f"{label}, {group}",
                *(f"{100 * s:.1f}%" for s in shares if s is not None),
                reduction_text(risks.reduced(measure, group)),
            )
    out.print(table)
    say_wrapped(PAPER_SHARES)


def show_attacker(found: Assessment) -> None:
    """Sds left to an intruder who knows all other records. Names no record."""
    rows = found.table().set_index(["fit", "group", "copies", "variances"])["smallest"]
    fits = [c for c in ("unrestricted", "restricted") if c in rows.index.get_level_values("fit")]
    table = Table("smallest sd left to an intruder who knows all other records", *fits, box=None)
    groups = list(dict.fromkeys(rows.index.get_level_values("group")))
    for group in groups:
        for count in (0, *found.copies):
            label = f"{group}, " + (f"L = {count}" if count else "without any copy")
            cells = []
            for name in fits:
                least, most = (float(rows[name, group, count, b]) for b in ("known", "fixed"))
                same = f"{least:.2g}" == f"{most:.2g}"
                cells.append(f"{most:.2g}" if same else f"{least:.2g} to {most:.2g}")
            table.add_row(label, *cells)
    out.print(table)
    out.print(
        f"On the modelled scale, over {found.intruder.draws} posterior draws; the first number if "
        "the intruder knows the variances behind each copy, the second if they are of no use"
    )
    if found.exact is not None:
        say_wrapped(str(found.exact).replace("\n", " "))


def show_estimates(estimates: Any) -> None:
    """The analyst's regression on the original and the copies."""
    sources = list(dict.fromkeys(estimates.table["source"]))
    say(f"{estimates.method}, estimate (95% interval)")
    table = Table("", *sources, box=None)
    for term in dict.fromkeys(estimates.table["term"]):
        rows = [estimates.get(source, term) for source in sources]
        table.add_row(
            as_text(term), *(f"{r['estimate']:.3f} ({r['low']:.3f}, {r['high']:.3f})" for r in rows)
        )
    out.print(table)


def show_demo(result: DemoResult) -> None:
    """The screen of a release, the loneliest record before and after, and the pictures."""
    release, found = result.release, result.assessment
    accepted = PUBLIC if found.verdict == "missed" else None
    page = result.folder / "confidential" / "report.html"
    where: dict[str, Any] = {"target": result.folder, "page": page}
    show_lines(release_screen(release, found, result.kept, accepted=accepted, **where))
    _show_outlier(release)
    if result.pictures:
        say(f"Pictures: {result.pictures[0].parent}")


def _show_outlier(release: Synthesis) -> None:
    """The most isolated record, before and after; the tables of the examples are public."""
    record = outlier(release)
    problem = release.problem
    free = release.unprotected
    assert free is not None
    place = ", ".join(f"{v:g}" for v in problem.coords[record])
    truth = problem.original()[record]
    say(f"The loneliest record, at ({place}), has {truth:,.0f}. Its copies:")
    rows = [["", "median", "middle 95%"]]
    for made, words in ((free, "without protection"), (release, "with protection")):
        low, middle, high = np.quantile(made.values[:, record], [0.025, 0.5, 0.975])
        rows.append([words, f"{middle:,.0f}", f"{low:,.0f} to {high:,.0f}"])
    show_lines(ScreenLine(text) for text in table_lines(rows))
