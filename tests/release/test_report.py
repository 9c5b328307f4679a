"""The two pages of a release: the steward's report and the public fact sheet."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import stat
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from test_write import QUICK, all_flagged, alone, none_flagged, one_copy, planted  # noqa: F401

import dsstan as ds
from conftest import small_table
from dsstan.analysis.pmse import pmse
from dsstan.analysis.spatial_regression import spatial_regression
from dsstan.comparison.frontier_result import Frontier
from dsstan.models.checks.conditions import Check
from dsstan.models.checks.verdict import Verdict
from dsstan.release.public import metadata
from dsstan.release.report import factsheet, write_report
from dsstan.release.report.pictures import copies_of
from dsstan.release.report.usefulness import groups
from dsstan.release.report.words import figure, percent
from dsstan.risk.assessment import assess, measured, why_no_intruder
from dsstan.risk.placing import half_width, placed_within

pytestmark = pytest.mark.filterwarnings("ignore:two copies")

VOID = {"meta", "link", "line", "circle", "rect", "polygon", "polyline", "br", "img", "input"}
HOSTILE = '<b>bold</b> & "x" é'
"""A name that would be markup if it were not escaped."""


class Page(HTMLParser):
    """Every tag of a page with its attributes and its own text, in order."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.open = text, [], []
        self.feed(text)
        assert self.open == [], "a tag is not closed"

    def handle_starttag(self, tag, attributes):
        self.tags.append({"tag": tag, "text": "", **dict(attributes)})
        if tag not in VOID:
            self.open.append(self.tags[-1])

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop()["tag"] == tag

    def handle_data(self, data):
        for tag in self.open:
            tag["text"] += data

    def all(self, name):
        return [tag for tag in self.tags if tag["tag"] == name]

    def of_class(self, name):
        return [tag for tag in self.tags if name in (tag.get("class") or "").split()]


def report(release, folder, **options):
    """The report of a release, as text."""
    risks = measured(release) if why_no_intruder(release) else assess(release, **options)
    kept = ds.utility(release) if release.copies > 1 else None
    return write_report(release, risks, kept, folder / "report.html").read_text(encoding="utf-8")


def facts(release, count=3):
    return factsheet(metadata(release, [f"copy_{i:03d}.csv" for i in range(1, count + 1)]))


@pytest.fixture(scope="module")
def release(kept):
    """Three copies of the restricted fit."""
    return ds.synthesise(kept, 3, seed=31)


@pytest.fixture(scope="module")
def found(release):
    return ds.assess(release, floor=0.5)


@pytest.fixture(scope="module")
def path(release, found, tmp_path_factory):
    """The report of it, with a floor."""
    target = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(release, found, ds.utility(release), target)


@pytest.fixture(scope="module")
def page(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def hostile():
    """A release whose names are markup and not ASCII: table, columns, index."""
    table = small_table(30, seed=9, shared=4)
    table[HOSTILE] = 1.5
    table["kind"] = ["1 plain", HOSTILE] * 15
    table["<script>alert(1)</script>"] = "<i>"
    table.index = pd.Index([f"<b>{i}</b>&é" for i in range(30)], name="<u>id</u>")
    problem = ds.prepare(
        table,
        "log(value) ~ C(kind)",
        coords=("east", "north"),
        name="<h1>Zürich & co</h1>",
        publish=[HOSTILE, "<script>alert(1)</script>"],
    )
    free = ds.fit(problem, seed=1, **QUICK)
    weights = ds.flag_isolated(free, distance=0.15)
    kept = ds.fit(problem, weights=weights, start=free, seed=2, **QUICK)
    return ds.synthesise(kept, 3, seed=3, accept_failed=True)


# What a page may ask for, and how it is built


@pytest.mark.parametrize("kind", ["report", "fact sheet"])
def test_a_page_asks_nothing_of_any_network(page, release, kind):
    shown = page if kind == "report" else Page(facts(release))
    assert not re.findall(r"https?:|//[a-z]|url\(|@import", shown.text)
    targets = [t[a] for t in shown.tags for a in ("src", "href", "srcset", "action") if a in t]
    assert all(target.startswith("#") or target == "data:," for target in targets)
    assert not {t["tag"] for t in shown.tags} & {"iframe", "object", "embed", "form", "base"}
    [policy] = [t["content"] for t in shown.all("meta") if "http-equiv" in t]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy.replace("style-src 'unsafe-inline'", "")


def test_every_picture_has_a_text_or_is_decoration(page):
    pictures = [*page.all("svg"), *page.all("img")]
    assert len(pictures) > 10
    for picture in pictures:
        if picture.get("aria-hidden") != "true":
            assert picture["role"] == "img"
            assert len(picture["aria-label"]) > 10


@pytest.mark.parametrize("kind", ["report", "fact sheet"])
def test_language_headings_and_names_are_in_order(page, release, kind):
    shown = page if kind == "report" else Page(facts(release))
    assert shown.all("html")[0]["lang"] == "en"
    levels = [int(t["tag"][1]) for t in shown.tags if re.fullmatch(r"h\d", t["tag"])]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b <= a + 1 for a, b in itertools.pairwise(levels))
    ids = [t["id"] for t in shown.tags if "id" in t]
    assert len(set(ids)) == len(ids)
    named = {t[a] for t in shown.tags for a in ("aria-labelledby", "data-readout") if a in t}
    named |= {t["href"][1:] for t in shown.all("a")}
    assert named <= set(ids)
    assert len(shown.all("caption")) == len(shown.all("table"))
    assert all(t["scope"] in ("col", "row", "colgroup") for t in shown.all("th"))


def test_only_its_owner_may_read_the_report(path):
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# The numbers


def test_the_worst_records_are_the_assessments_to_the_last_digit(page, release, found):
    table = page.text[page.text.index('id="worst-records"') :]
    rows = re.findall(r"<tr[^>]*>\s*<th scope=\"row\">(.*?)</th>(.*?)</tr>", table, re.DOTALL)
    sd = found.after.sd(variances="known")
    order = np.argsort(sd, kind="stable")[:20]
    assert [label for label, _ in rows] == [str(release.problem.table.index[i]) for i in order]
    records = found.records
    expected = {
        "neighbour": release.fit.weights.nearest,
        "flagged": records["flagged"],
        "share_before": records["within_relative_unrestricted"],
        "share_after": records["within_relative_restricted"],
        "sd_none": records["sd_leave_one_out"],
        "sd_before": records["sd_known_3_unrestricted"],
        "sd_after": records["sd_known_3_restricted"],
        "sd_fixed": records["sd_fixed_3_restricted"],
        "exposure": records["exposure"],
        "row": np.arange(release.problem.n_records),
    }
    pattern = r'data-key="(\w+)" data-value="([^"]*)"[^>]*>([^<]*)<'
    for i, (_, cells) in zip(order, rows, strict=True):
        shown = {key: (float(value), text) for key, value, text in re.findall(pattern, cells)}
        assert set(shown) == set(expected)
        for key, (value, text) in shown.items():
            assert value == float(np.asarray(expected[key])[i]), key
            if key.startswith("sd"):
                assert text == figure(value)
            if key.startswith("share"):
                assert text == percent(value)


def test_the_map_tells_of_every_place_and_marks_the_flagged_by_shape(page, release):
    problem, fit = release.problem, release.fit
    start = page.text.index('class="map"')
    drawn = Page("<svg " + page.text[start : page.text.index("</svg>", start)] + "</svg>")
    places = drawn.of_class("place")
    assert len(places) == problem.n_sites
    assert len(drawn.of_class("flagged")) == len(np.unique(problem.site_index[fit.flagged]))
    told = "\n".join(place["text"] for place in places)
    within = half_width(problem, ds.assess(release).sd)
    for i in np.flatnonzero(fit.flagged):
        assert f"Record {i} (row {i}), flagged\nneighbour at {figure(fit.weights.nearest[i])}" in (
            told
        )
        assert f"{placed_within(within[i])} after it" in told
    for i in range(problem.n_records):
        assert f"Record {i} (row {i})" in told


def test_the_map_has_one_scale_on_both_axes(page, release):
    start = page.text.index('class="map"')
    drawn = page.text[start : page.text.index("</svg>", start)]
    marks = re.findall(r'<circle class="record" cx="([\d.]+)" cy="([\d.]+)"', drawn)
    problem = release.problem
    wide, high = np.ptp(problem.sites[~release.fit.flagged], axis=0)
    seen = np.ptp(np.array(marks, dtype=float), axis=0)
    assert seen[0] / seen[1] == pytest.approx(wide / high, rel=0.01)


def test_posterior_shares_intruder_and_estimates_are_those_of_the_release(page, release, found):
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.text))
    for fit in (release.fit, release.fit.start):
        row = fit.summary().loc["tau_sq"]
        assert f"{figure(row['mean'], 4)} {figure(row['sd'])}" in text
        assert f"{row['rhat']:.3f}" in text
    for fit in ("unrestricted", "restricted"):
        for group in ("flagged", "unflagged"):
            assert percent(found.shares.share("within_relative", fit, group)) in text
    for smallest in found.table()["smallest"]:
        assert figure(smallest) in text
    for row in ds.utility(release).table.to_dict("records"):
        for key in ("estimate", "low", "high"):
            assert figure(row[key], 4) in text
    assert f"{found.largest_release} copies" in text or "No number of copies" in text


def test_an_interval_is_drawn_from_its_low_end_to_its_high_end(page, release):
    table = ds.utility(release).table
    term = table[table["term"] == "x"]
    low, high = term["low"].min(), term["high"].max()
    drawn = [
        Page("<svg " + part.split("</svg>")[0] + "</svg>")
        for part in page.text.split('<svg class="spark"')[1:]
    ]
    assert len(drawn) == len(table)
    for row, picture in zip(term.to_dict("records"), drawn[-len(term) :], strict=True):
        [line] = [t for t in picture.of_class("interval") if t["y1"] == t["y2"]]
        for end, key in (("x1", "low"), ("x2", "high")):
            expected = 8 + 184 * (row[key] - low) / (high - low)
            assert float(line[end]) == pytest.approx(expected, abs=0.01)


def test_the_report_names_programs_and_versions_and_no_seed(planted, tmp_path):  # noqa: F811
    text = report(planted, tmp_path)
    for fit in (planted.fit, planted.fit.start):
        assert fit.fingerprint in text
        assert fit.engine_version in text
    assert f"<dd>{ds.__version__}</dd>" in text
    assert not [
        s for s in (planted.seed, planted.fit.seed, planted.fit.start.seed) if str(s) in text
    ]


# Verdict and what to do


def with_check(release, severity):
    """The release as if its fit had not met a check."""
    check = Check(
        "rhat", 1.3, "below 1.01", severity, "tau_sq", "run more iterations", "not-converged"
    )
    fit = dataclasses.replace(release.fit, verdict=Verdict((check,)), notes=("mind <this>",))
    return dataclasses.replace(release, fit=fit, accepted=(severity == "failure", False))


@pytest.mark.parametrize(
    ("severity", "head"),
    [("failure", "Do not publish as it is"), ("warning", "Publish only with a reason")],
)
def test_a_condition_is_told_with_its_measure_and_what_to_do(release, tmp_path, severity, head):
    shown = Page(report(with_check(release, severity), tmp_path))
    fit, disclosure = shown.of_class("banner")
    assert severity in fit["class"]
    assert "FIT: " in fit["text"]
    assert "DISCLOSURE: NOT JUDGED" in disclosure["text"]
    assert "No floor was asked for" in disclosure["text"]
    [answer] = shown.of_class("answer")
    assert head in answer["text"]
    first = shown.of_class("finding")[0]["text"]
    assert f"{severity.capitalize()}: not-converged (restricted fit)" in first
    assert "rhat of tau_sq 1.30; should be below 1.01" in first
    assert "What to do: Run more iterations." in first
    assert "Mind <this>." in shown.of_class("finding")[-1]["text"]
    assert any("Accepted" in f["text"] for f in shown.of_class("finding")) == (
        severity == "failure"
    )


def test_records_below_the_floor_are_counted_with_what_to_do(page, found):
    assert found.below_floor.size > 0
    [told] = [f["text"] for f in page.of_class("finding") if "below the floor" in f["text"]]
    assert f"{found.below_floor.size} of 60 records" in told
    assert "What to do:" in told
    assert page.of_class("floor")
    [disclosure] = [b["text"] for b in page.of_class("banner") if "DISCLOSURE" in b["text"]]
    assert "DISCLOSURE: MISSED" in disclosure
    assert f"{found.below_floor.size} of 60 records are below the floor of 0.5" in disclosure


def test_the_page_leads_with_how_near_an_intruder_gets_then_the_exact_one(page, found):
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.text))
    within = half_width(found.release.problem, found.sd)
    for members in (found.release.fit.flagged, ~found.release.fit.flagged):
        assert placed_within(within[members].min()) in text
    order = ["May it be published", "weakest record placed within", "Exact intruder", "Sd left to"]
    order += ["measure: single copies", "Mean share of a record"]
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    for row in found.exact.records.to_dict("records"):
        assert figure(found.sd[row["position"]]) in text


def test_the_record_whose_risk_rose_most_is_named_and_ringed(release, found, tmp_path):
    before = dataclasses.replace(found.before, information=found.before.information.copy())
    before.information[7] = 0.0
    before.leak[7] = 0.0
    # A rise counts beyond the Monte Carlo error, which is large for few copies.
    sure = {"error": np.zeros_like(before.error), "leave_one_out_error": None}
    rose = dataclasses.replace(
        found,
        before=dataclasses.replace(before, **sure),
        after=dataclasses.replace(found.after, **sure),
        exact_before=None,
    )
    assert rose.rose_most == 7
    target = write_report(release, rose, ds.utility(release), tmp_path / "r.html")
    shown = Page(target.read_text(encoding="utf-8"))
    assert any("risk rose most at record 7" in f["text"] for f in shown.of_class("finding"))
    assert len(shown.of_class("ring")) == 2  # on the map and in its key


def unrestricted(release):
    return release.unprotected


@pytest.mark.parametrize("case", [none_flagged, all_flagged, alone, one_copy, unrestricted])
def test_every_kind_of_release_has_a_report_and_a_fact_sheet(release, tmp_path, case):
    special = case(release)
    shown = Page(report(special, tmp_path))
    told = " ".join(f["text"] for f in shown.of_class("finding"))
    assert ("One copy" in told) == (case is one_copy)
    assert ("Nobody is protected" in told) == (case in (unrestricted, none_flagged))
    assert ("No intruder assessed" in told) == (case is alone)
    assert ("Risk in detail, before and after protection" in shown.text) == (
        case not in (unrestricted, alone)
    )
    flagged = int(special.fit.flagged.sum())
    assert f"{flagged} flagged" in shown.of_class("map")[0]["aria-label"]
    assert not re.search(r"\bnan\b|\bNone\b|\binf\b", re.sub(r"<style.*?</style>", "", shown.text))
    sheet = facts(special, special.copies)
    assert ("Never analyse one copy alone" in sheet) == (special.copies > 1)
    Page(sheet)


# Names that are markup


def test_names_from_the_data_are_text_on_both_pages(hostile, tmp_path):
    names = {"b", "i", "u"}
    for text in (report(hostile, tmp_path), facts(hostile)):
        shown = Page(text)
        assert not {t["tag"] for t in shown.tags} & names
        assert len(shown.all("h1")) == 1
        assert "alert(1)" not in "".join(t["text"] for t in shown.all("script"))
        assert text.count("<script") == len(shown.all("script")) <= 1
    assert "Zürich & co" in Page(report(hostile, tmp_path)).all("title")[0]["text"]
    assert "<b>0</b>&é" in "".join(t["text"] for t in Page(report(hostile, tmp_path)).all("title"))
    cells = [t["text"] for t in Page(facts(hostile)).all("th")]
    assert HOSTILE in cells
    heads = [t["text"] for t in Page(report(hostile, tmp_path)).of_class("group-heading")]
    assert any(HOSTILE in head for head in heads), heads


def test_the_weakest_ten_stand_before_all_else_but_the_map_and_are_numbered_on_it(page, found):
    within = half_width(found.release.problem, found.sd)
    order = np.argsort(within, kind="stable")[:10]
    start = page.text.index("Placed within, 95% certain")
    rows = re.findall(
        r'<td data-head="record"[^>]*>(.*?)</td>', page.text[start : page.text.index("dot ", start)]
    )
    labels = [str(found.release.problem.table.index[i]) for i in order]
    assert [re.split("[ ,]", text)[0] for text in rows] == labels
    told = ", ".join(t["text"] for t in page.of_class("number") if t["tag"] == "text").split(", ")
    assert sorted(map(int, told)) == list(range(1, 11))
    exact = page.text.index("Exact intruder of")
    assert page.text.index('id="sign"') < exact
    assert "<details>" in page.text[page.text.index('id="appendix"') : exact]


def test_copies_are_drawn_where_they_lie_on_the_axis_of_prices(release):
    row = int(np.flatnonzero(release.fit.flagged)[0])
    picture = Page(str(copies_of(release, row)))
    values = np.sort(np.log(release.values[:, row]))
    places = np.array([float(d["cx"]) for d in picture.of_class("protected")])
    [truth] = picture.of_class("truth")
    x = np.append(places, float(truth["x1"]))
    y = np.append(values, release.problem.y[row])
    slope, start = np.polyfit(y, x, 1)
    np.testing.assert_allclose(x, start + slope * y, atol=0.02)
    assert len(picture.of_class("unprotected")) == release.copies
    [drawn] = picture.of_class("chart")
    assert f"(row {row}, counted from 0)" in drawn["aria-label"]


def test_the_means_of_groups_are_those_of_the_table_and_the_copies(release):
    table = groups(release).set_index(["by", "group"])
    flagged, truth = release.fit.flagged, release.problem.original()
    means = release.values[:, ~flagged].mean(axis=1)
    row = table.loc[("Flags", "not flagged")]
    assert row["data"] == pytest.approx(truth[~flagged].mean())
    assert ("Flags", "flagged") not in table.index  # one record is no group
    assert row["copies"] == pytest.approx(means.mean())
    assert (row["least"], row["most"]) == pytest.approx((means.min(), means.max()))
    quarters = table.loc["Quarters of the map", "records"]
    assert quarters.sum() == release.problem.n_records


def test_the_regression_that_counts_space_stands_beside_least_squares(page, release):
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.text))
    free = release.fit.start
    covariance = tuple(float(np.median(free.scalars[k])) for k in ("sigma_sq", "tau_sq", "phi"))
    for row in spatial_regression(release, covariance=covariance).table.to_dict("records"):
        assert f"{figure(row['estimate'], 4)} {figure(row['low'], 4)} to" in text
    assert str(pmse(release)).splitlines()[1] in text


def test_the_report_carries_the_name_that_the_summary_and_the_ledger_have(release, tmp_path):
    target = release.write(tmp_path / "named") / "confidential"
    name = json.loads((target / "summary.json").read_text())["release"]
    assert json.loads((target / "ledger.json").read_text())["releases"][-1]["release"] == name
    shown = Page((target / "report.html").read_text(encoding="utf-8"))
    assert [t["text"] for t in shown.of_class("name")] == [name]


def test_settings_that_were_compared_are_listed(release, found, tmp_path):
    table = pd.DataFrame(
        {"setting": ["none", "paper"], "copies": [5, 5], "within_all": [0.1, np.nan]}
        | {"overlap": [0.9, 0.8], "passed": [True, False]}
    )
    compared = Frontier(table, release.fit.flagged, {}, 1, 2, 0.0)
    target = write_report(release, found, None, tmp_path / "r.html", alternatives=compared)
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", target.read_text(encoding="utf-8")))
    assert "Settings compared" in text
    assert "paper 5 – 0.800 fit failed" in text
    assert "No other setting is recorded" not in text


def test_nothing_typed_into_the_sign_off_can_be_sent(page):
    fields = page.all("input")
    assert len(fields) == 4
    assert all("name" not in one and one["autocomplete"] == "off" for one in fields)


def test_a_release_without_pages_has_none(release, tmp_path):
    target = release.write(tmp_path / "r", report=False)
    assert list(target.rglob("*.html")) == []
