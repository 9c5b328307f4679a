"""Text that a spreadsheet would run: what is refused, quoted and kept."""

from __future__ import annotations

import pandas as pd
import pytest

from dsstan.core.errors import InputError, ReleaseError
from dsstan.table.text.cells import check_cells, is_formula, quote, quoting_of, unquote


def table(*cells, index=None):
    return pd.DataFrame({"n": range(len(cells)), "t": list(cells)}, index=index)


@pytest.mark.parametrize("text", ["=1+1", "@x", "+x", "-x()", "\t=1"])
def test_what_begins_like_a_formula_is_one(text):
    assert is_formula(text)


@pytest.mark.parametrize("text", ["a", "-1", "-1+1", "+1.5", "1=1", "", "-", 3, None])
def test_numbers_and_other_text_are_none(text):
    assert not is_formula(text)


def test_such_cells_are_refused_unless_they_are_quoted_or_kept_and_only_in_text():
    bad = table("a", "=1+1")
    with pytest.raises(ReleaseError, match=r"column 't' holds text .* in 1 row"):
        check_cells(bad, True, "refuse")
    check_cells(bad, True, "quote")
    check_cells(bad, True, "keep")
    check_cells(bad, False, "refuse")
    check_cells(table("a", "b"), True, "refuse")
    with pytest.raises(InputError, match="csv_text must be one of"):
        check_cells(bad, True, "x")


def test_a_formula_after_a_semicolon_is_refused_where_cells_are_quoted():
    with pytest.raises(ReleaseError, match="after a semicolon or a line break"):
        check_cells(table("a", "b;=1+1"), True, "quote")


def test_a_name_that_begins_like_a_formula_is_refused_unless_kept():
    bad = table("a").rename(columns={"t": "=t"})
    for how in ("refuse", "quote"):
        with pytest.raises(ReleaseError, match="the column name"):
            check_cells(bad, True, how)
    check_cells(bad, True, "keep")


def test_the_index_is_looked_at_and_quoted_too():
    bad = table("a", "b", index=pd.Index(["=1", "x"], name="id"))
    with pytest.raises(ReleaseError, match="the index holds text"):
        check_cells(bad, True, "refuse")
    pd.testing.assert_frame_equal(unquote(quote(bad)), bad)


def test_an_apostrophe_is_put_before_formulas_and_before_apostrophes():
    assert quote(table("=1", "'a", "b"))["t"].tolist() == ["'=1", "''a", "b"]


def test_text_with_a_carriage_return_is_quoted_in_all_cells():
    assert quoting_of(table("a\rb")) == 2
    assert quoting_of(table("a\nb")) == 0
    assert quoting_of(table("\r").astype({"t": "category"})) == 2
