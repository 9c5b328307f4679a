"""One line, a table and HTML of every public result, and no record's value in any."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from dsstan.core.display import WIDTH, Card, Part, Shown


@dataclass(frozen=True, repr=False)
class Example(Shown):
    name: str

    def _line(self) -> str:
        return f"Example {self.name}"

    def _card(self) -> Card:
        table = pd.DataFrame({"<a>": [1.23456]}, index=["row"])
        return Card((("one", "<b>"), ("longer", "x")), (Part(table, "A table"), "A note & more"))


def test_a_result_is_one_line_as_repr_and_its_card_as_text():
    assert repr(Example("e")) == "Example e"
    assert str(Example("e")).splitlines() == [
        "Example e",
        "  one     <b>",
        "  longer  x",
        "",
        "A table",
        "      <a>",
        "row 1.235",
        "",
        "A note & more",
    ]


def test_html_is_escaped():
    html = Example("<script>")._repr_html_()
    assert "<script>" not in html
    assert "<b>" not in html
    assert "A note &amp; more" in html
    assert "&lt;a&gt;" in html


def test_a_card_without_anything_is_its_line():
    class Bare(Shown):
        def _line(self) -> str:
            return "Bare"

    assert str(Bare()) == repr(Bare()) == "Bare"
    assert Bare()._repr_html_() == "<div><p><strong>Bare</strong></p></div>"


@pytest.fixture(scope="module")
def results() -> dict[str, Shown]:
    """Every public result once, of a table whose values differ from all other numbers."""
    table = ds.load_simulated().sample(40, random_state=1).reset_index(drop=True)
    problem = ds.prepare(table, "log(income) ~ 1", coords=("s1", "s2"), name="town")
    free = ds.fit(problem, seed=1, engine="direct", progress=False)
    flags = ds.flag_isolated(free, distance=0.1)
    kept = ds.fit(problem, weights=flags, start=free, seed=2, engine="direct", progress=False)
    release = ds.synthesise(kept, copies=3, seed=3, progress=False)
    found = ds.compare(problem, start=free, distances=(0.1,), copies=(3,), progress=False)
    estimates = ds.combine(np.array([[1.0], [2.0]]), np.array([[1.0], [1.0]]))
    return {
        "Problem": problem,
        "Fit": free,
        "restricted": kept,
        "Weights": flags,
        "own": ds.own_weights(problem, flags.a),
        "Synthesis": release,
        "Assessment": ds.assess(release, floor="10%", progress=False),
        "Utility": ds.utility(release),
        "Frontier": found,
        "Pooled": estimates,
    }


def test_every_result_has_a_line_a_table_and_html(results):
    for name, result in results.items():
        assert isinstance(result, Shown), name
        assert "\n" not in repr(result), name
        assert len(repr(result)) <= 120, name
        assert len(str(result).splitlines()) > 1, name
        assert "<table" in result._repr_html_(), name


def test_what_is_printed_fits_the_page(results):
    wide = {
        name: line
        for name, result in results.items()
        for line in str(result).splitlines()
        if len(line) > WIDTH
    }
    assert wide == {}


def test_no_display_has_the_value_of_a_record(results):
    release = results["Synthesis"]
    fit = release.fit
    secret = [*release.problem.original(), *release.problem.y, *fit.draws["beta"].ravel()]
    digits = {f"{value:.4g}" for value in secret[: 2 * release.problem.n_records]}
    digits |= {repr(float(value))[:8] for value in secret}
    for name in ("Problem", "Weights", "own", "Synthesis", "Assessment"):
        result = results[name]
        shown = repr(result) + str(result) + result._repr_html_()
        assert not [value for value in digits if len(value) >= 5 and value in shown], name


def test_results_below_fit_keep_the_line_of_a_fit():
    from dsstan.models.adaptive.fit import AdaptiveFit
    from dsstan.models.brackets.result import BracketedFit
    from dsstan.models.counts.fit import CountFit
    from dsstan.models.groups.result import MultivariateFit

    for kind in (AdaptiveFit, BracketedFit, CountFit, MultivariateFit):
        assert kind.__repr__ is Shown.__repr__, kind
