"""The data steward's page of a release with synthetic places."""

from __future__ import annotations

import base64
import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dsstan.analysis.places.marked import marked, marked_release
from dsstan.copies.places.result import PlacedRelease
from dsstan.core.display import html_of
from dsstan.core.files.workspace import write_private
from dsstan.release.pictures.place_plots import plot_k, plot_places
from dsstan.release.placed.verdict import conditions_of, placed_lines
from dsstan.release.report.content import condition_items, notes_of
from dsstan.release.report.rendering import environment
from dsstan.release.report.tables import placing
from dsstan.release.verdicts import GUESSES, answer
from dsstan.risk.places.result import PlaceAssessment
from dsstan.table.problem import Problem

if TYPE_CHECKING:
    from plotnine import ggplot

    from dsstan.analysis.places.utility import PlaceUtility

_SHOWN, _DPI = 3, 110


def write_placed_report(
    release: PlacedRelease,
    assessment: Any,
    kept: PlaceUtility,
    folder: Path,
    *,
    name: str | None = None,
    accepted: str | None = None,
) -> None:
    """Write ``report.html`` and ``utility.csv``, for their owner alone.

    The page asks nothing of any network. Confidential: its map shows where the records are.

    Parameters
    ----------
    release
        The copies.
    assessment
        What intruders learn, or None.
    kept
        From :func:`dsstan.analysis.places.utility.place_utility`.
    folder
        The confidential folder.
    name
        Of the release, as the ledger has it.
    accepted
        The reason why a missed limit is accepted.
    """
    from markupsafe import Markup

    judged = isinstance(assessment, PlaceAssessment)
    values = assessment.values if judged else None
    copies = marked_release(release)[:_SHOWN]
    original, mask = marked(release.problem), release.intensity.mask
    places = plot_places(original, copies, mask, value=_modelled(release.problem))
    lines = placed_lines(release, assessment, accepted)
    page = (
        environment()
        .get_template("placed.html")
        .render(
            problem=release.problem,
            release=release.in_words,
            name=name,
            verdicts=lines,
            answer=answer(lines),
            findings=condition_items(conditions_of(release)) + notes_of(release.fits),
            judged=Markup(html_of(assessment.numbers())) if judged else "",
            values=None if values is None else placing(values),
            most_learnt="" if values is None else values.most_learnt_in_words(),
            guesses=GUESSES,
            kept=Markup(kept._repr_html_()),
            shown=len(copies),
            map=_png(places),
            k=_png(plot_k(kept, unit=release.problem.unit)),
        )
    )
    write_private(folder / "report.html", page.encode("utf-8"))
    kept.curves.to_csv(folder / "utility.csv", index=False)


def _modelled(problem: Problem) -> str:
    """The response as it is modelled, such as ``log(price)``."""
    name = problem.transform.name
    return problem.response if name == "identity" else f"{name}({problem.response})"


def _png(plot: ggplot) -> str:
    """A picture as text."""
    from plotnine.exceptions import PlotnineWarning

    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlotnineWarning)
        plot.save(picture, format="png", dpi=_DPI, verbose=False)
    return base64.b64encode(picture.getvalue()).decode()
