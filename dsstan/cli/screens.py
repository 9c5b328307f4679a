"""What the command line prints of a release."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dsstan.analysis.overlap import interval_overlap
from dsstan.analysis.utility import Utility
from dsstan.cli.examples import DemoResult, outlier
from dsstan.copies.result import Synthesis
from dsstan.core.errors import CONTROL
from dsstan.core.seeds import GUESSABLE_BITS
from dsstan.models.conditions import short_seed
from dsstan.release.conditions import conditions
from dsstan.risk.assessment import Assessment
from dsstan.risk.disclosure import Disclosure, reduction_text

WIDTH = 100
"""Characters of a line of the short summary."""

out = Console()
if not out.is_terminal:
    out = Console(width=110)


def say(text: str, style: str | None = None) -> None:
    """One line as it is: what stands in brackets, in a path or a term, is no markup.

    Signs that a terminal would obey, as the name of a file may hold, are shown as a box.
    """
    out.print(escape(CONTROL.sub("\ufffd", text)), style=style, soft_wrap=True)


def show_short(
    release: Synthesis, found: Assessment | Disclosure, estimates: Utility | None
) -> None:
    """One screen: may it go out, what did protection change, what is left to an analyst."""
    fit, problem = release.fit, release.problem
    say(
        f"{problem.n_records} records at {problem.n_sites} sites, {int(fit.flagged.sum())} "
        f"flagged; protection {fit.protection}; {release.copies} copies"
    )
    show_verdict(release)
    say(_rule(release))
    table = Table("Before and after protection", "before", "after", box=None, pad_edge=False)
    rows = _share_rows(found.shares if isinstance(found, Assessment) else found)
    for label, cells in (*rows, *(_least_rows(found) if isinstance(found, Assessment) else ())):
        table.add_row(label, *cells)
    out.print(table)
    if not isinstance(found, Assessment):
        say("The attacker was not computed: that takes one Gaussian response without gaps")
    elif found.risen.size:
        say(f"{found.risen_remarks()[0].split(':')[0]}, in summary.json")
    if not isinstance(found, Assessment):
        say("So no floor could be set: nothing here was judged for disclosure")
    elif found.floor is None:
        say("No floor was set, so nothing here was judged for disclosure: see --floor")
    else:
        say(
            f"Floor {found.floor:g}: {found.below_floor.size} of {problem.n_records} records below "
            f"it; at most {found.largest_release} copies meet it for all"
        )
    if estimates is not None:
        say(_utility_line(estimates))


def show_verdict(release: Synthesis) -> None:
    """Whether the fits may reach a release, and which conditions were not met."""
    names = ", ".join(dict.fromkeys(str(c["condition"]) for c in conditions(release, alone=True)))
    passed = all(f.verdict.passed for f in release.fits.values())
    outcome = "passed, with warnings" if names else "passed"
    said = outcome if passed else "FAILED, and accepted by whoever ran this"
    colour = "yellow" if names else None
    say(f"Verdict: {said}", colour)
    for line in textwrap.wrap(f"Not met: {names}", WIDTH) if names else []:
        say(line, colour)


def _rule(release: Synthesis) -> str:
    """By which rule records were flagged."""
    weights = release.fit.weights
    if weights is None or not np.isfinite(weights.threshold):
        return "Flagged: by weights of your own" if weights is not None else "Flagged: nobody"
    return (
        f"Flagged: no neighbour nearer than M = {weights.threshold:.4g} {release.problem.unit}, "
        f"where the correlation is {weights.correlation:.2g}"
    )


def _share_rows(shares: Disclosure) -> list[tuple[str, list[str]]]:
    """Shares of copies near the truth, by group."""
    out = []
    for group in ("flagged", "unflagged"):
        found = [shares.share("within_relative", f, group) for f in ("unrestricted", "restricted")]
        if any(s is not None for s in found):
            label = f"Copies within {100 * shares.relative:g}% of the truth, {group}"
            out.append((label, ["-" if s is None else f"{100 * s:.1f}%" for s in found]))
    return out


def _least_rows(found: Assessment) -> list[tuple[str, list[str]]]:
    """Smallest sd after L copies for an intruder who knows the variances, by group."""
    table = found.table()
    mine = table[(table["copies"] == found.after.copies) & (table["variances"] == "known")]
    out = []
    for group in dict.fromkeys(mine["group"]):
        by_fit = mine[mine["group"] == group].set_index("fit")["smallest"]
        cells = [
            f"{by_fit[f]:.2g}" if f in by_fit.index else "-" for f in ("unrestricted", "restricted")
        ]
        out.append((f"Smallest sd left to an intruder who knows all others, {group}", cells))
    return out


def _utility_line(estimates: Utility) -> str:
    """How far the copies' intervals of the regression overlap those of the original."""
    source = "restricted" if "restricted" in set(estimates.table["source"]) else "unrestricted"
    shares = []
    for term in dict.fromkeys(estimates.table["term"]):
        ends = [estimates.get(side, str(term)) for side in ("original", source)]
        both = [(float(row["low"]), float(row["high"])) for row in ends]
        shares.append(float(interval_overlap(*both).truncated))
    return (
        f"Utility: the regression's intervals overlap the original's by "
        f"{100 * np.mean(shares):.0f}% ({100 * np.min(shares):.0f}% at least)"
    )


def show_fits(release: Synthesis) -> None:
    """Posterior before and after, and the verdicts."""
    fit = release.fit
    fits = {k: f for k, f in release.fits.items() if not k.startswith("imputation")}
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
            say(f"{kind} fit, {check}", "yellow")
        for note in f.notes:
            say(f"{kind} fit, note: {note}", "yellow")
    if release.seed_bits < GUESSABLE_BITS:
        say(str(short_seed(release.seed_bits)), "yellow")
    out.print(
        f"Largest error of the interpolated log density: "
        f"{max(f.surface_error for f in fits.values()):.1g}"
    )


def show_shares(risks: Any) -> None:
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
            table.add_row(
                f"{label}, {group}",
                *(f"{100 * s:.1f}%" for s in shares if s is not None),
                reduction_text(risks.reduced(measure, group)),
            )
    out.print(table)


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
        f"On the modelled scale, over {found.after.draws} posterior draws; the first number if "
        "the intruder knows the variances behind each copy, the second if they are of no use"
    )
    for remark in found.risen_remarks():
        say(f"{remark}, in summary.json")
    for remark in found.floor_remarks():
        say(remark)


def show_estimates(estimates: Any) -> None:
    """The analyst's regression on the original and the copies."""
    sources = list(dict.fromkeys(estimates.table["source"]))
    say(f"Least squares {estimates.formula}, estimate (95% interval)")
    table = Table("", *sources, box=None)
    for term in dict.fromkeys(estimates.table["term"]):
        rows = [estimates.get(source, term) for source in sources]
        table.add_row(
            escape(term), *(f"{r['estimate']:.3f} ({r['low']:.3f}, {r['high']:.3f})" for r in rows)
        )
    out.print(table)


def show_demo(result: DemoResult) -> None:
    """Everything a reader wants to see of one example."""
    release = result.release
    show_fits(release)
    show_shares(result.risks)
    show_attacker(result.assessment)
    show_estimates(result.kept)
    _show_outlier(release)
    say(f"Release:  {result.folder}")
    say(f"Report:   {result.folder / 'confidential' / 'report.html'}")
    if result.pictures:
        say(f"Pictures: {result.pictures[0].parent}")


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
    out.print(
        f"truth {problem.y[record]:.2f}, on the modelled scale ({problem.transform.name}); shown "
        "because this table is public"
    )
