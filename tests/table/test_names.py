"""Any column name works between backticks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.core.errors import FormulaError
from dsstan.table.formulas.formula import build_design, parse

NAMES = [
    *("floor area (m²)", "class", "lambda", "log", "scale", "I", "None", "True", "Intercept"),
    *("a'b", 'q"q', "a\\b", "rent (€/m²)", "日本", "ﬁeld", "²", "1st", "2.5", "a:b", "a~b"),
    *("a|b", "{z}", "#", "%s", "x.y", " lead", "__hidden", "column_0_", "column"),
]

FORMS = [
    *("v ~ {n}", "v ~ log({n})", "v ~ scale(log({n}))", "v ~ bs({n}, df=4)", "log({n}) ~ v"),
    *("{n} ~ v", "v ~ {n}:w", "v ~ poly({n}, degree=2)", "v ~ {n} + I({n}**2)", "v ~ C({n})"),
    *("v ~ {n}*w", "v ~ {{{n} / w}}"),
]

PLAIN = "u"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_a_quoted_name_gives_the_design_of_a_plain_one(name, form):
    rng = np.random.default_rng(1)
    values = rng.integers(1, 4, 30) if "C(" in form else rng.uniform(1, 4, 30)
    table = pd.DataFrame({PLAIN: values, "v": rng.uniform(1, 2, 30), "w": rng.uniform(1, 2, 30)})
    expected = build_design(parse(form.format(n=PLAIN)), table)
    parsed = parse(form.format(n=f"`{name}`"))
    assert name in (parsed.response, *parsed.columns)
    found = build_design(parsed, table.rename(columns={PLAIN: name}))
    np.testing.assert_array_equal(found.X, expected.X)
    np.testing.assert_array_equal(found.y, expected.y)
    bare = [term.replace(f"`{name}`", PLAIN).replace(name, PLAIN) for term in found.terms[1:]]
    assert name in ("column", "I", "scale", "log") or bare == list(expected.terms[1:])


@pytest.mark.parametrize("name", NAMES)
def test_the_standard_form_of_the_right_side_is_a_formula_of_the_same_terms(name):
    parsed = parse(f"y ~ scale(log(`{name}`)) + C(`{name}`):x + `{name}` + {{`{name}` / x}}")
    again = parse(f"y ~ {parsed.rhs}")
    assert again.rhs == parsed.rhs
    assert again.columns == parsed.columns


def test_terms_have_the_names_of_the_table():
    table = pd.DataFrame({"v": [1.0, 2, 4, 3, 5, 6], "m²": [2.0, 3, 5, 4, 1, 7], "c": [*"ababba"]})
    found = build_design(parse("v ~ `m²`:c + log(`m²`)"), table)
    assert found.terms == ("Intercept", "log(`m²`)", "m²:c[a]", "m²:c[b]")


def test_messages_have_the_names_of_the_table():
    with pytest.raises(FormulaError, match=r"exp2\(`m²`\)"):
        parse("v ~ exp2(`m²`)")
    with pytest.raises(FormulaError, match=r"it is 'log\(`m²` \+ 1\)'"):
        parse("log(`m²` + 1) ~ v")
    table = pd.DataFrame({"v": [1.0], "area (m²)": [1.0]})
    with pytest.raises(FormulaError, match=r"'area \(m2\)', which .* Did you mean 'area \(m²\)'"):
        build_design(parse("v ~ `area (m2)`"), table)
    for text in ("v ~ `m²` +", "v ~ `m²` ~ `m²`", "v ~ (`m²`"):
        with pytest.raises(FormulaError) as caught:
            parse(text)
        assert "column_0" not in str(caught.value)


def test_a_column_named_like_a_term_must_be_quoted():
    with pytest.raises(FormulaError, match=r"write the column of that name .* in backticks"):
        parse("v ~ Intercept")


def test_a_table_of_odd_names_goes_all_the_way(tmp_path):
    from dsstan.release.reading import read_release

    table = small_table(30, seed=9, shared=4)
    table["floor area (m²)"] = np.exp(table.pop("x"))
    table["class"] = np.arange(30) % 3
    names = {"value": "rent (€)", "east": "x (m)", "north": "y: 1|2"}
    table = table.rename(columns=names).assign(**{"größe [m²]": 1.5})
    release = ds.protect(
        *(table, "log(`rent (€)`) ~ log(`floor area (m²)`) + C(`class`)"),
        coords=("x (m)", "y: 1|2"),
        threshold=0.15,
        copies=4,
        seed=1,
        engine="direct",
        accept_failed=True,
        publish=["größe [m²]"],
    )
    kept = ds.utility(release, "log(`rent (€)`) ~ bs(`floor area (m²)`, df=4)")
    assert "bs(`floor area (m²)`, df=4)[1]" in set(kept.table["term"])
    found = read_release(release.write(tmp_path / "r"))
    assert set(found.copies[0]) == set(table)
