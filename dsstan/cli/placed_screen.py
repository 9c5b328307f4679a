"""What the command line prints of a release with synthetic places: a few plain lines."""

from __future__ import annotations

import shlex
from pathlib import Path

from dsstan.cli.print_release import summary_of
from dsstan.cli.release_screen import COLOURS
from dsstan.cli.screen_lines import ScreenLine, wrapped
from dsstan.cli.screens import say, show_lines
from dsstan.cli.session import document, emit
from dsstan.copies.places.result import PlacedRelease
from dsstan.core.display import chance_per_cent
from dsstan.models.checks.conditions import CONDITIONS
from dsstan.release.placed.verdict import placed_lines, unmet
from dsstan.release.verdicts import FREE, NAMED, answer
from dsstan.risk.places.result import LONELY, PlaceAssessment

__all__ = ["placed_screen", "print_placed"]


def print_placed(
    release: PlacedRelease,
    found: PlaceAssessment,
    target: Path | None,
    *,
    accepted: str | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Print the screen, or one JSON document of a release that was written."""
    if as_json:
        if target is not None:
            folders: dict[str, Path | None] = {
                "public": target / "public",
                "confidential": target / "confidential",
                "report": _page(target),
            }
            emit(
                document(
                    "synthesise",
                    confidential=True,
                    dry_run=False,
                    paths={"release": target, **folders},
                    summary=summary_of(target),
                )
            )
        return
    show_lines(placed_screen(release, found, target, accepted))
    if verbose:
        for fit in release.fits:
            for line in str(fit).splitlines():
                say(line)
        for line in str(found).splitlines():
            say(line)


def placed_screen(
    release: PlacedRelease,
    found: PlaceAssessment,
    target: Path | None,
    accepted: str | None = None,
) -> list[ScreenLine]:
    """The verdicts, what intruders learn of places, the columns and what to do next."""
    verdicts = placed_lines(release, found, accepted)
    said = answer(verdicts)
    lines = [part for v in verdicts for part in wrapped(str(v), COLOURS[v.severity])]
    if target is None:  # no report has these words
        for name in unmet(release)[:NAMED]:
            words = CONDITIONS.get(name.partition(" ")[0], "not met")
            lines += wrapped(f"  {name}: {words}", COLOURS["warning"], indent=4)
    lines += [ScreenLine(said, "bold")]
    for text in (_places_line(release), *_risk_lines(release, found), _columns_line(release)):
        lines += wrapped(text)
    if target is not None:
        to = shlex.quote(str(target.parent / f"{target.name}-public"))
        page = _page(target)
        accept = "" if said == FREE else ' --accept "REASON"'
        lines += [
            ScreenLine(f"Release: {target}"),
            *([] if page is None else [ScreenLine(f"Read first: {page}")]),
            ScreenLine(f"To publish: dsstan publish {shlex.quote(str(target))} --to {to}{accept}"),
        ]
    return lines


def _page(target: Path) -> Path | None:
    """The report of a release, if it has one."""
    page = target / "confidential" / "report.html"
    return page if page.is_file() else None


def _places_line(release: PlacedRelease) -> str:
    intensity = release.intensity
    return (
        f"{release.in_words}; {intensity.mask.n_cells} cells; {int(intensity.lonely.sum())} of "
        f"{intensity.n_records} records are lonely: {LONELY}"
    )


def _risk_lines(release: PlacedRelease, found: PlaceAssessment) -> list[str]:
    """What the two intruders come to for the record that is worst off."""
    what = found.right_place
    chance, before = found.chance.max(), found.chance_before.max()
    wide = f", {release.intensity.mask.width:.3g} {release.problem.unit}s wide,"
    cell = ""
    if found.by_address:
        after, alone = found.found.cell.max(), found.found.cell_before.max()
        cell = f"; their cell{wide} {chance_per_cent(after)} ({chance_per_cent(alone)})"
    else:
        what += wide
    lines = [
        f"Somebody who knows a person and everybody else finds their {what} with a chance of "
        f"at most {chance_per_cent(chance)} ({chance_per_cent(before)} without the release){cell}"
    ]
    if found.presence_hidden:
        of = "with a person than without"
        if found.number == "kept":
            of = "with a person than with another in their stead; that one more is there is known"
        lines.append(
            f"The copies are at most {found.bayes_factor.max():.3g} times likelier {of} "
            "(Bayes factor of presence)"
        )
    else:
        lines.append("Moved places do not hide who is in the table: covariates are kept")
    if found.values is not None and found.values.after is not None:
        lines.append(found.values.most_learnt_in_words())
    return lines


def _columns_line(release: PlacedRelease) -> str:
    names = ", ".join(map(str, release.tables[0].columns))
    left = f"; not published: {', '.join(release.left_out)}" if release.left_out else ""
    return f"Published: {names} (synthetic: {release.synthetic_in_words}){left}"
