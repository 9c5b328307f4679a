"""The report in a real browser: Debian's Chromium, without a screen."""

from __future__ import annotations

import math
import shutil

import pytest
from test_report import found, hostile, path, release, report  # noqa: F401

from conftest import leave_out
from dsstan.release.report import factsheet

WIDTHS = (1280, 390)
SWITCHES = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync "
    "--disable-dev-shm-usage"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, driven by selenium."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        leave_out("Chromium is missing; apt-get install chromium chromium-driver")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for switch in (*SWITCHES.split(), f"--user-data-dir={tmp_path_factory.mktemp('browser')}"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(programs[1]))
    yield driver
    driver.quit()


def show(browser, file, width):
    """Open a page at a width, phones as phones."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get_log("browser")
    browser.get(file.as_uri())
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")


def fits(browser):
    """Whether nothing but the tables' own boxes is wider than the window."""
    wide = browser.execute_script(
        "const most = document.documentElement.clientWidth;"
        "return [...document.body.querySelectorAll('*')].filter(e => !e.closest('.scroll > *, svg')"
        " && !e.closest('.quiet') && e.getBoundingClientRect().right > most + 1)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    sizes = browser.execute_script(
        "const e = document.documentElement; return [e.scrollWidth, e.clientWidth]"
    )
    return wide == [] and sizes[0] <= sizes[1]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_report_opens_without_an_error_and_fits_the_window(browser, path, width):  # noqa: F811
    show(browser, path, width)
    assert browser.title == "Release report: small"
    assert fits(browser)
    assert browser.get_log("browser") == []
    columns = browser.execute_script(
        "return getComputedStyle(document.querySelector('.pair')).gridTemplateColumns"
    )
    assert len(columns.split()) == (2 if width > 600 else 1)


def test_on_a_phone_every_column_of_results_is_on_the_screen(browser, path):  # noqa: F811
    show(browser, path, 390)
    cut = browser.execute_script(
        "return [...document.querySelectorAll('.scroll')].filter(e => e.scrollWidth > "
        "e.clientWidth).map(e => e.getAttribute('aria-label'))"
    )
    assert cut == []
    beyond = browser.execute_script(
        "return [...document.querySelectorAll('td, tbody th')].filter(e => {"
        "const r = e.getBoundingClientRect();"
        "return r.width > 0 && (r.left < 0 || r.right > 390); }).map(e => e.textContent)"
    )
    assert beyond == []


@pytest.mark.parametrize("width", WIDTHS)
def test_long_names_that_are_markup_fit_too(browser, hostile, tmp_path, width):  # noqa: F811
    report(hostile, tmp_path)
    show(browser, tmp_path / "report.html", width)
    assert fits(browser)
    assert browser.get_log("browser") == []
    assert browser.find_element("tag name", "h1").text == ("Release report: <h1>Zürich & co</h1>")


@pytest.mark.parametrize("width", WIDTHS)
def test_the_fact_sheet_fits_the_window(browser, release, tmp_path, width):  # noqa: F811
    from dsstan.release.public import metadata

    sheet = tmp_path / "factsheet.html"
    sheet.write_text(factsheet(metadata(release, ["copy_001.csv"])), encoding="utf-8")
    show(browser, sheet, width)
    assert fits(browser)
    assert browser.get_log("browser") == []


def shown_values(browser, column):
    """The sort values of a column, from the first row on; text as text."""
    return browser.execute_script(
        "return [...document.querySelectorAll('#worst-records tbody tr')]"
        ".map(r => r.cells[arguments[0]].dataset.value ?? r.cells[arguments[0]].textContent)",
        column,
    )


def test_a_heading_sorts_by_number_both_ways_and_says_so(browser, path):  # noqa: F811
    show(browser, path, 1280)
    heads = browser.find_elements("css selector", "#worst-records thead th")
    assert len(heads) == 11
    for column, head in enumerate(heads):
        before = shown_values(browser, column)
        for _ in range(2):
            head.find_element("tag name", "button").click()
            order = head.get_attribute("aria-sort")
            values = [float(v) for v in shown_values(browser, column)]
            assert values == sorted(values, reverse=order == "descending")
        assert sorted(before) == sorted(shown_values(browser, column))
        said = browser.find_element("id", "sorted").get_attribute("textContent")
        assert said.startswith("Sorted by ")
        sorting = browser.find_elements("css selector", "#worst-records [aria-sort]")
        assert [e.text for e in sorting] == [head.text]
    assert {order} <= {"ascending", "descending"}


def test_rows_stay_whole_when_sorted(browser, path):  # noqa: F811
    show(browser, path, 1280)
    rows = "return [...document.querySelectorAll('#worst-records tbody tr')].map(r => r.innerText)"
    before = browser.execute_script(rows)
    browser.find_elements("css selector", "#worst-records thead button")[3].click()
    after = browser.execute_script(rows)
    assert before != after
    assert sorted(before) == sorted(after)


def test_the_table_sorts_from_the_keyboard(browser, path):  # noqa: F811
    from selenium.webdriver.common.keys import Keys

    show(browser, path, 1280)
    button = browser.find_elements("css selector", "#worst-records thead button")[3]
    button.send_keys(Keys.ENTER)
    values = [float(v) for v in shown_values(browser, 3)]
    assert values == sorted(values)
    assert browser.switch_to.active_element == button


@pytest.mark.parametrize("width", WIDTHS)
def test_a_place_on_the_map_tells_its_numbers(browser, path, release, width):  # noqa: F811
    from selenium.webdriver.common.action_chains import ActionChains

    show(browser, path, width)
    places = browser.find_elements("css selector", "svg.map .place")
    assert len(places) == release.problem.n_sites
    assert all(
        browser.execute_script(
            "return [...document.querySelectorAll('svg.map .place')]"
            ".map(p => p.querySelector('title').textContent.startsWith('Record '))"
        )
    )
    mark = browser.find_element("css selector", "svg.map .flagged")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", mark)
    if width > 600:
        ActionChains(browser).move_to_element(mark).perform()
    else:
        mark.click()
    told = browser.find_element("id", "readout-map").text
    assert "flagged" in told
    assert "placed within:" in told


def test_the_policy_stops_a_request(browser, path):  # noqa: F811
    show(browser, path, 1280)
    stopped = browser.execute_async_script(
        "const done = arguments[0];"
        "document.addEventListener('securitypolicyviolation', e => done(e.effectiveDirective));"
        "new Image().src = 'http://127.0.0.1:9/x.png'; setTimeout(() => done('none'), 4000)"
    )
    assert stopped == "img-src"


def contrast(colour, ground):
    """Contrast of two colours, as the accessibility guidelines define it."""

    def light(text):
        parts = [int(v) / 255 for v in text[text.index("(") + 1 : -1].split(",")[:3]]
        linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts]
        return math.fsum(w * v for w, v in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((light(colour), light(ground)))
    return (high + 0.05) / (low + 0.05)


def test_text_stands_out_from_its_ground(browser, path):  # noqa: F811
    show(browser, path, 1280)
    pairs = browser.execute_script(
        "const out = new Set(); for (const e of document.querySelectorAll('main *, header *')) {"
        "if (e.closest('svg') || !e.innerText) continue; let g = e;"
        "while (g && getComputedStyle(g).backgroundColor === 'rgba(0, 0, 0, 0)')"
        " g = g.parentElement;"
        "out.add(getComputedStyle(e).color + '|' + "
        "(g ? getComputedStyle(g).backgroundColor : 'rgb(255, 255, 255)')); } return [...out]"
    )
    assert len(pairs) > 3
    assert [p for p in pairs if contrast(*p.split("|")) < 4.5] == []
