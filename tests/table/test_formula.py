"""Formulas: what may be written, what is refused, and what y and X become."""

from __future__ import annotations

import pickle
import subprocess

import formulaic
import numpy as np
import pandas as pd
import pytest

from dsstan.core.errors import FormulaError, TableError
from dsstan.table.formulas.formula import (
    ALLOWED_FUNCTIONS,
    ResponseTransform,
    build_design,
    design,
    parse,
)

EXACT = 1e-12  # rounding of a handful of double precision operations


@pytest.fixture
def table() -> pd.DataFrame:
    rng = np.random.default_rng(3)
    n = 30
    return pd.DataFrame(
        {
            "y": rng.gamma(3.0, size=n),
            "x": rng.gamma(2.0, size=n),
            "z": rng.choice(["north", "south", "west"], n),
            "k": np.arange(n) % 3,
            "floor area": rng.gamma(2.0, size=n),
            "log": rng.gamma(2.0, size=n),
        }
    )


@pytest.mark.parametrize(
    ("formula", "terms"),
    [
        ("y ~ 1", ("Intercept",)),
        ("y ~ x", ("Intercept", "x")),
        ("y ~ x - 1", ("x",)),
        ("y ~ 0 + x", ("x",)),
        ("y ~ log(x) + sqrt(x)", ("Intercept", "log(x)", "sqrt(x)")),
        ("y ~ abs(x - 0.25)", ("Intercept", "abs(x - 0.25)")),
        ("y ~ I(x**2) + {1 / x}", ("Intercept", "I(x ** 2)", "1 / x")),
        ("y ~ z", ("Intercept", "z[T.south]", "z[T.west]")),
        ("y ~ C(k)", ("Intercept", "C(k)[T.1]", "C(k)[T.2]")),
        ("y ~ x:k", ("Intercept", "x:k")),
        ("y ~ x * k", ("Intercept", "x", "k", "x:k")),
        ("y ~ `floor area` + log(`floor area`)", ("Intercept", "floor area", "log(`floor area`)")),
        ("y ~ poly(x, 2)", ("Intercept", "poly(x, 2)[1]", "poly(x, 2)[2]")),
        ("y ~ scale(log(x), ddof=0)", ("Intercept", "scale(log(x), ddof=0)")),
        ("y ~ log", ("Intercept", "log")),
    ],
)
def test_a_formula_gives_these_columns(
    table: pd.DataFrame, formula: str, terms: tuple[str, ...]
) -> None:
    assert design(parse(formula), table)[2] == terms


@pytest.mark.parametrize("function", ALLOWED_FUNCTIONS)
def test_every_allowed_function_works(table: pd.DataFrame, function: str) -> None:
    own = {"bs": "bs(x, df=4)", "ns": "ns(x, df=4)", "poly": "poly(x, 2)", "C": "C(z)"}
    piece = own.get(function, f"{function}(x)")
    assert build_design(parse(f"y ~ {piece}"), table).X.shape[0] == len(table)


def test_the_design_matrix_is_that_of_formulaic(table: pd.DataFrame) -> None:
    right = "scale(log(x)) + C(z):k + bs(x, df=4)"
    expected = formulaic.model_matrix(right, table.drop(columns="log"))
    _, X, terms = design(parse(f"y ~ {right}"), table)
    assert terms == tuple(expected.columns)
    np.testing.assert_allclose(X, expected.to_numpy(dtype=float), rtol=EXACT)


@pytest.mark.parametrize(
    ("piece", "in_r"),
    [
        ("ns(x, df=4)", "ns(x, df = 4)"),
        ("ns(x, 2)", "ns(x, df = 2)"),
        ("ns(x, knots=[0.4, 1])", "ns(x, knots = c(0.4, 1))"),
        (
            "ns(x, 3, lower_bound=0.1, upper_bound=3)",
            "ns(x, df = 3, Boundary.knots = c(0.1, 3))",
        ),
    ],
)
def test_a_natural_spline_fits_what_that_of_r_does(rscript: str, piece: str, in_r: str) -> None:
    """Most values of x are tied, and with the outer knots given some lie beyond them."""
    rng = np.random.default_rng(6)
    x = np.concatenate([np.round(rng.gamma(2.0, 0.5, 50), 1), [0.05, 4.7]])
    table = pd.DataFrame({"x": x, "y": np.sin(3 * x) + rng.normal(size=52)})
    _, X, terms = design(parse(f"y ~ {piece}"), table)
    assert len(terms) == X.shape[1]
    found = X @ np.linalg.lstsq(X, table["y"], rcond=None)[0]
    code = (
        'library(splines); t <- read.csv("stdin"); '
        f'cat(sprintf("%.17g", fitted(lm(y ~ {in_r}, t))), sep = "\\n")'
    )
    text = table.to_csv(index=False, float_format="%.17g")
    out = subprocess.run(
        [rscript, "-e", code], input=text, capture_output=True, text=True, check=True
    )
    np.testing.assert_allclose(found, np.array(out.stdout.split(), dtype=float), rtol=0, atol=1e-9)


def test_scale_divides_by_the_sample_standard_deviation(table: pd.DataFrame) -> None:
    _, X, _ = design(parse("y ~ scale(x)"), table)
    expected = (table["x"] - table["x"].mean()) / table["x"].std(ddof=1)
    np.testing.assert_allclose(X[:, 1], expected, rtol=EXACT)


REFUSED = [
    ("np.log(x)", "np.log(x)"),
    ("open(x)", "open(x)"),
    ("log(x.values)", "x.values"),
    ("x[0]", "x[0]"),
    ("log(x)[0]", "log(x)[0]"),
    ("log(x)(3)", "log(x)(3)"),
    ("{(lambda: x)()}", "(lambda: x)()"),
    ("{[i for i in x]}", "[i for i in x]"),
    ("{x if x else 1}", "x if x else 1"),
    ("{x and k}", "x and k"),
    ("{x > 1}", "x > 1"),
    ("{f(x)}", "f(x)"),
    ("log(f'{x}')", "log(f'{x}')"),
    ("{'%s' % x}", "'%s' % x"),
    ("Q('x')", "Q('x')"),
    ("C(z, contr.sum)", "C(z, contr.sum)"),
    ("C(z, levels=['a'])", "C(z, levels=['a'])"),
    ("{__builtins__}", "__builtins__"),
    ("`__class__`", "__class__"),
    ("{x.__class__}", "x.__class__"),
    ("{log.__globals__}", "log.__globals__"),
    ("__import__(x)", "__import__(x)"),
    ("scale(x, _state=k)", "scale(x, _state=k)"),
    ("scale(*x)", "*x"),
    ("log(x, out=k)", "log(x, out=k)"),
    ("log(x, k)", "log(x, k)"),
    ("bs(x, df=k)", "bs(x, df=k)"),
    ("poly(x, 99999)", "poly(x, 99999)"),
    ("{9 ** 9 ** 9}", "9 ** 9 ** 9"),
    ("{x ** 9999}", "x ** 9999"),
    ("{x ** k}", "x ** k"),
    ("{2j * x}", "2j"),
    ("hashed(x)", "hashed(x)"),
    ("lag(x)", "lag(x)"),
    ("scale(poly(x, 2))", "poly(x, 2)"),
    ("C(log(x))", "C(log(x))"),
]


@pytest.mark.parametrize(("piece", "named"), REFUSED)
def test_anything_else_is_refused_by_name(piece: str, named: str) -> None:
    with pytest.raises(FormulaError) as caught:
        parse(f"y ~ {piece}")
    assert repr(named) in str(caught.value)
    assert ", ".join(ALLOWED_FUNCTIONS) in str(caught.value)


def test_a_formula_cannot_see_the_callers_variables(table: pd.DataFrame) -> None:
    secret = np.ones(len(table))
    assert len(secret)
    with pytest.raises(FormulaError, match="'secret', which the table does not have"):
        design(parse("y ~ secret"), table)


def test_nothing_is_evaluated_while_parsing() -> None:
    assert parse("y ~ {1 / 0 + x}").columns == ("x",)


@pytest.mark.parametrize(
    ("formula", "words"),
    [
        ("", "empty text"),
        ("x + k", "no left side"),
        ("~ x", "no left side"),
        ("y ~", "nothing on its right side"),
        ("y ~ 0", "nothing on its right side"),
        ("y ~ .", "name the columns"),
        ("y ~ x | k", "several parts"),
        ("y ~ x ~ k", "cannot be read"),
        ("y ~ x +", "cannot be read"),
        ("y ~ {x", "cannot be read"),
        ("y ~ 3", "cannot be read"),
        ("y ~ (a+b+c+d+e+f+g+h+i+j)^9", "too many terms"),
        ("y ~ a*b*c*d*e*f*g*h*i*j*k*l", "too many terms"),
        ("y ~ ((a+b+c)^7)^7", "too many terms"),
        ("y ~ a^999999999", "too many terms"),
        ("y ~ (a+b+c+d+e+f+g+h)^(8)", "no plain number"),
        ("y ~ I(x*1" + 400 * "0" + ")", "not allowed"),
        ("y ~ I(x**1" + 400 * "0" + ")", "not allowed"),
        ("y ~ bs(x, df=1" + 400 * "0" + ")", "not allowed"),
        ("y ~ " + "+".join(["x"] * 2000), "longer than"),
        ("y + x ~ k", "2 terms"),
        ("y * x ~ k", "3 terms"),
        ("y:x ~ k", "must be one column"),
        ("log(y + 1) ~ x", "must be one column"),
        ("sqrt(y) ~ x", "must be one column"),
        ("log(log(y)) ~ x", "must be one column"),
        ("C(y) ~ x", "must be one column"),
        ("1 ~ x", "must be one column"),
        ("y ~ y", "right side too"),
        ("log(y) ~ x + scale(y)", "right side too"),
    ],
)
def test_a_formula_that_cannot_be_used_says_why(formula: str, words: str) -> None:
    with pytest.raises(FormulaError, match=words):
        parse(formula)


@pytest.mark.parametrize("formula", [None, 3, b"y ~ x"])
def test_a_formula_must_be_text(formula: object) -> None:
    with pytest.raises(FormulaError, match=type(formula).__name__):
        parse(formula)  # type: ignore[arg-type]


def test_a_missing_column_is_named_with_a_likely_one(table: pd.DataFrame) -> None:
    with pytest.raises(FormulaError, match=r"'flor area'.*Did you mean 'floor area'"):
        design(parse("y ~ `flor area`"), table)


def test_a_column_named_like_a_function_does_no_harm_while_unused(table: pd.DataFrame) -> None:
    assert "log" in table.columns
    np.testing.assert_array_equal(design(parse("y ~ log(x)"), table)[1][:, 1], np.log(table["x"]))


def test_a_column_named_like_a_function_it_stands_beside_is_refused(table: pd.DataFrame) -> None:
    with pytest.raises(FormulaError, match="'log' has the name of a function"):
        design(parse("y ~ log + log(x)"), table)


@pytest.mark.parametrize("name", ["identity", "log", "log2", "log10", "log1p"])
def test_a_transform_is_undone_by_its_inverse(name: str) -> None:
    values = np.array([0.3, 1.0, 40.0, 2e6])
    transform = ResponseTransform(name)
    np.testing.assert_allclose(transform.inverse(transform.forward(values)), values, rtol=EXACT)


@pytest.mark.parametrize(
    ("left", "expected"), [("y", lambda y: y), ("log10(y)", np.log10), ("log(`y`)", np.log)]
)
def test_the_left_side_gives_the_response(table: pd.DataFrame, left: str, expected: object) -> None:
    y, _, _ = design(parse(f"{left} ~ x"), table)
    np.testing.assert_allclose(y, expected(table["y"].to_numpy()), rtol=EXACT)  # type: ignore[operator]


@pytest.mark.parametrize(
    "formula",
    ["y ~ x", "y ~ 0 + z", "y ~ `floor area`:z + {x / 2}", "y ~ C(k)*log(x)", "y ~ 2:x"],
)
def test_the_standard_form_of_the_right_side_reads_back(table: pd.DataFrame, formula: str) -> None:
    parsed = parse(formula)
    first, again = build_design(parsed, table), build_design(parse(f"y ~ {parsed.rhs}"), table)
    assert first.terms == again.terms
    np.testing.assert_array_equal(first.X, again.X)


def test_the_columns_of_the_right_side_are_listed() -> None:
    parsed = parse("y ~ scale(log(x)) + C(k):`floor area` + k")
    assert parsed.columns == ("x", "k", "floor area")
    assert parsed.categories == ()


def test_a_design_serves_copies_with_another_response(table: pd.DataFrame) -> None:
    built = build_design(parse("log(y) ~ x"), table)
    copy = table.assign(y=table["y"] * 2.0)
    np.testing.assert_allclose(built.y_of(copy), np.log(2.0) + np.log(table["y"]), rtol=EXACT)


def test_a_design_refuses_a_copy_with_other_rows(table: pd.DataFrame) -> None:
    built = build_design(parse("y ~ x"), table)
    with pytest.raises(TableError, match="30 rows and this table has 29"):
        built.y_of(table.iloc[1:])


def test_the_arrays_of_a_design_are_read_only(table: pd.DataFrame) -> None:
    built = build_design(parse("y ~ x"), table)
    for array in (built.X, built.y):
        assert not array.flags.writeable
        assert array.flags.c_contiguous
        assert array.dtype == np.float64


def test_a_design_can_be_sent_to_another_process(table: pd.DataFrame) -> None:
    built = build_design(parse("log(y) ~ C(z) + x"), table)
    sent = pickle.loads(pickle.dumps(built))
    np.testing.assert_array_equal(sent.y_of(table), built.y)
    assert sent.terms == built.terms


@pytest.mark.parametrize(
    "dtype",
    ["int8", "uint16", "float32", "Int64", "Float64", "int64[pyarrow]", "double[pyarrow]", "O"],
)
def test_numbers_of_every_width_are_read_alike(table: pd.DataFrame, dtype: str) -> None:
    plain = design(parse("y ~ k"), table)[1]
    other = design(parse("y ~ k"), table.assign(k=table["k"].astype(dtype)))[1]
    np.testing.assert_array_equal(plain, other)


@pytest.mark.parametrize("dtype", [object, "string", "category", "string[pyarrow]"])
def test_text_of_every_kind_is_read_alike(table: pd.DataFrame, dtype: object) -> None:
    plain = design(parse("y ~ z"), table)
    other = design(parse("y ~ z"), table.assign(z=table["z"].astype(dtype)))
    np.testing.assert_array_equal(plain[1], other[1])
    assert plain[2] == other[2]


def test_a_boolean_column_is_read_as_zero_and_one(table: pd.DataFrame) -> None:
    _, X, _ = design(parse("y ~ b"), table.assign(b=table["k"] > 0))
    np.testing.assert_array_equal(X[:, 1], (table["k"] > 0).astype(float))


@pytest.mark.parametrize("kind", ["C(k)", "C(k):x", "text", "text*x", "C(text)", "C(f)"])
def test_a_level_that_the_first_table_lacked_is_refused(kind: str) -> None:
    rng = np.random.default_rng(2)
    first = pd.DataFrame({"y": rng.normal(size=30), "x": rng.normal(size=30)})
    first["k"] = np.arange(30) % 3
    first["f"] = first["k"] * 0.5
    first["text"] = first["k"].map({0: "a", 1: "b", 2: "c"})
    built = build_design(parse(f"y ~ {kind}"), first)
    np.testing.assert_array_equal(built.X_of(first), built.X)
    other = first.assign(k=first["k"].replace(2, 7))
    other["f"], other["text"] = other["k"] * 0.5, other["k"].map({0: "a", 1: "b", 7: "secret"})
    with pytest.raises(TableError, match=r"has a level in 10 rows .* no record had") as caught:
        built.X_of(other)
    assert "secret" not in str(caught.value)


def test_a_level_that_a_later_table_lacks_leaves_a_column_of_zeros() -> None:
    first = pd.DataFrame({"y": np.arange(9.0), "k": np.arange(9) % 3})
    built = build_design(parse("y ~ C(k)"), first)
    assert not built.X_of(first.assign(k=first["k"].replace(2, 1)))[:, 2].any()


def test_the_owner_of_a_column_names_no_level() -> None:
    first = pd.DataFrame({"y": np.arange(9.0), "k": np.arange(9) % 3, "x": np.arange(9.0) ** 2})
    built = build_design(parse("y ~ x + C(k)"), first)
    assert built.owners == ("1", "x", "C(k)", "C(k)")
    assert len(built.owners) == len(built.terms)


def test_zeros_under_a_logarithm_are_told_of_a_heap_and_a_few_are_not() -> None:
    values = np.arange(1.0, 31.0)
    for zeros, told in ((6, True), (2, False)):
        table = pd.DataFrame({"y": np.where(np.arange(30) < zeros, 0.0, values)})
        with pytest.raises(TableError) as caught:
            build_design(parse("log(y) ~ 1"), table)
        assert ("heap=0" in str(caught.value)) is told
