"""Several releases of one table are counted together, and nothing in the ledger is a value."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import signal
import stat
import subprocess
import sys
from dataclasses import asdict, replace
from decimal import Decimal

import jsonschema
import numpy as np
import pandas as pd
import pytest
from test_publish import judged

import dsstan as ds
from conftest import ROOT, small_table
from dsstan.cli.release_screen import release_screen
from dsstan.core.errors import DisclosureError, DsstanWarning, InputError
from dsstan.release.publication.earlier import published_before
from dsstan.release.publication.ledger import (
    ENTRIES,
    VARIABLE,
    Ledger,
    ledger_folder,
    open_ledger,
    read_entry,
)
from dsstan.release.publication.ledger_information import (
    COLUMNS,
    GROUPS,
    PLACE,
    read_information,
    read_places,
    sd_left,
)
from dsstan.release.publication.ledger_note import read_note
from dsstan.release.publication.ledger_report import tables_in
from dsstan.release.publication.publish import publish
from dsstan.release.publication.record_order import fingerprint_of, largest_of_each, record_order
from dsstan.release.verdicts import placing_rows
from dsstan.release.write import write_release
from dsstan.risk.intruder.attacker import MARGIN, attack
from dsstan.risk.intruder.exact import exact_intruder
from dsstan.risk.intruder.former import Former, ledger_precision
from dsstan.risk.intruder.planned import MOST_COPIES
from dsstan.table.parquet import prepare_parquet
from factory import fit_from

INTERPOLATED = 1e-6
"""The terms of a release are interpolated in phi over the range of its own draws."""

EXACT = 1e-9
"""Sums of the same numbers in another order."""

NOT_NORMAL = 0.05
"""What known variances say of a value is no normal density, so that precisions add up nearly."""

COORDS = ("east", "north")
REASON = "a test"


@pytest.fixture(autouse=True)
def ledger(tmp_path, monkeypatch):
    """A ledger of each test's own."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "ledger of mine"))
    return tmp_path / "ledger of mine"


@pytest.fixture(scope="module")
def table():
    return small_table(30, seed=9, shared=4)


def fit_of(table, formula="log(value) ~ x", seed=2, scale=1.0):
    """A fit from given draws."""
    problem = ds.prepare(table, formula, coords=COORDS, name="homes")
    rng = np.random.default_rng(seed)
    draws = {
        "beta": rng.normal([5.0, 0.7], 0.1, (2, 100, 2)),
        "sigma_sq": scale * rng.uniform(1, 2, (2, 100)),
        "tau_sq": scale * rng.uniform(0.2, 0.4, (2, 100)),
        "phi": rng.uniform(3, 5, (2, 100)),
    }
    return fit_from(problem, draws)


def copies_of(fit, count=4, seed=3):
    return ds.synthesise(fit, count, seed=seed, accept_few_draws=True, accept_failed=True)


def written(release, folder, floor=0.01, **how):
    """The release, judged by bounds alone, its fit as if it had no warnings."""
    found = ds.assess(release, floor=floor, exact=0, progress=False, **how)
    accepted = {"accept_below_floor": True, "reason": REASON}
    path = write_release(release, folder, assessment=found, report=False, **accepted)
    return judged(path, "ok", found.verdict), found


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


# What former releases add


def test_two_releases_of_ten_copies_tell_what_one_of_twenty_does(table):
    fit = fit_of(table)
    whole = copies_of(fit, 20)
    halves = [
        replace(whole, values=whole.values[part], draw_index=whole.draw_index[part])
        for part in (slice(0, 10), slice(10, 20))
    ]
    first = attack(halves[0], former=False, progress=False)
    gain = {v: first.own_information(10, v) for v in ("fixed", "known")}
    both = attack(halves[1], former=Former(**gain, releases=1, copies=10), progress=False)
    one = attack(whole, former=False, progress=False)
    np.testing.assert_allclose(both.sd(), one.sd(), rtol=INTERPOLATED)
    ratio = both.sd(variances="known") / one.sd(variances="known")
    np.testing.assert_allclose(ratio, 1.0, atol=NOT_NORMAL)


def test_the_table_of_intruders_begins_with_what_is_out_already(table, tmp_path):
    entered(copies_of(fit_of(table)), tmp_path)
    release = copies_of(fit_of(table), seed=5)
    found = ds.assess(release, floor=1e-9, exact=0, progress=False)
    for name, least in (("fixed", found.sd_alone), ("known", found.least_sd_alone)):
        gained = found.after.former.information(name)
        assert (gained > 0).all()
        expected = (found.after.leave_one_out**-2 + gained) ** -0.5
        np.testing.assert_allclose(least, expected, rtol=EXACT)
    assert (found.sd_alone < found.after.leave_one_out).all()
    assert all("already out" in row.cells for row in placing_rows(found))
    assert "already out" in str(found)
    assert "no release" not in str(found)
    fresh = ds.assess(release, floor=1e-9, exact=0, progress=False, former=False)
    np.testing.assert_array_equal(fresh.sd_alone, fresh.after.leave_one_out)
    assert all("no release" in row.cells for row in placing_rows(fresh))
    assert replace(found, least_sd=1.01 * found.sd_alone).hopeless == 30
    assert replace(found, least_sd=0.99 * found.sd_alone).hopeless == 0


def test_an_sd_without_copies_and_the_largest_release_count_what_is_out(table):
    release = copies_of(fit_of(table))
    bare = attack(release, former=False, progress=False)
    gain = bare.own_information(4, "known")
    more = replace(bare, former=Former(gain, gain, 1, 4))
    expected = MARGIN[1] * (bare.leave_one_out**-2 + gain) ** -0.5  # one margin for the whole
    np.testing.assert_allclose(more.sd(0, variances="known"), expected, rtol=EXACT)
    floor = float(bare.sd(6, variances="known").min())
    assert bare.largest_release(floor) >= 6
    assert more.largest_release(floor) < bare.largest_release(floor)
    assert replace(more, former=Former(100 * gain, 100 * gain, 1, 400)).largest_release(floor) == 0


def test_the_exact_intruder_has_the_former_releases_too(table):
    release = copies_of(fit_of(table))
    bare = attack(release, former=False, progress=False)
    gain = bare.own_information(4, "known")
    more = replace(bare, former=Former(gain, gain, 1, 4))
    rows = range(0, 30, 6)
    one, other = (
        exact_intruder(release, records=rows, bounds=b, progress=False).records.sort_values(
            "position"
        )["sd"]
        for b in (bare, more)
    )
    # A normal posterior would have exactly this sd; this one is near to normal.
    expected = (one**-2 + gain[rows]) ** -0.5
    np.testing.assert_allclose(other, expected, rtol=0.05)


BY_ITSELF = "; by itself, every record keeps the floor of 1e-09 by the lower bounds"


# What the ledger finds again


def entered(release, tmp_path, name="one", **how):
    folder, found = written(release, tmp_path / name, **how)
    publish(folder, to=tmp_path / f"{name} published", reason=REASON)
    return found


def test_a_published_release_is_counted_by_the_next_and_not_by_itself(table, tmp_path):
    first, second = copies_of(fit_of(table)), copies_of(fit_of(table), seed=5)
    alone = ds.assess(second, exact=0, progress=False)
    assert alone.after.former is None
    found = entered(first, tmp_path)
    assert published_before(first.problem, first.values) is None
    again = ds.assess(second, exact=0, progress=False)
    gain = found.after.own_information(4, "known")
    np.testing.assert_allclose(again.after.former.known, gain, rtol=EXACT)
    np.testing.assert_allclose(ledger_precision(second.problem), gain, rtol=EXACT)
    plain = alone.after.sd(variances="known") / MARGIN[1]
    expected = MARGIN[1] * (plain**-2 + gain) ** -0.5
    np.testing.assert_allclose(again.sd, expected, rtol=EXACT)
    entered(second, tmp_path, "two")
    assert published_before(fit_of(table).problem).copies == 8
    summary = json.loads((tmp_path / "two" / "confidential" / "summary.json").read_text())
    schema = json.loads((ROOT / "docs" / "summary.schema.json").read_text())
    former = schema["$defs"]["attacker"]["properties"]["former"]
    jsonschema.Draft202012Validator(former).validate(summary["attacker"]["former"])
    assert summary["attacker"]["former"] == {
        "releases": 1,
        "copies": 4,
        "unjudged": 0,
        "alike": 0,
    }


def test_a_release_that_is_written_and_not_published_is_not_counted(table, tmp_path):
    written(copies_of(fit_of(table)), tmp_path / "one")
    assert published_before(fit_of(table).problem) is None


def test_the_same_copies_published_twice_count_once(table, tmp_path):
    release = copies_of(fit_of(table))
    entered(release, tmp_path, "one")
    entered(release, tmp_path, "two")
    publish(tmp_path / "one", to=tmp_path / "elsewhere", reason=REASON)
    assert published_before(release.problem).releases == 1
    [entry] = open_ledger().entries()
    assert len(entry.published) == 3


def test_a_fingerprint_is_that_of_six_digits_whatever_made_it(table):
    """A ledger has to know its tables in later versions: another hash would forget them all."""
    key = bytes(range(32))
    values = np.concatenate([[-0.0, 1e-7, 123456.5, 1.5e12], table["value"]])
    written_out = (f"{value:.5e}".split("e") for value in values)
    rounded = sorted(float(digits) * 10.0 ** int(power) + 0.0 for digits, power in written_out)
    content = b"dsstan ledger 1, responses" + np.array(rounded, dtype="<f8").tobytes()
    expected = hmac.new(key, content, hashlib.sha256).hexdigest()
    assert fingerprint_of(values, key) == expected
    problem = fit_of(table).problem
    assert record_order(problem).fingerprints(key)[0] == fingerprint_of(problem.original(), key)


def test_records_are_found_again_in_another_order_of_the_rows(table, tmp_path):
    found = entered(copies_of(fit_of(table)), tmp_path)
    order = np.random.default_rng(8).permutation(30)
    shuffled = table.iloc[order].reset_index(drop=True)
    former = published_before(fit_of(shuffled).problem)
    gain = found.after.own_information(4, "fixed")
    np.testing.assert_allclose(former.fixed, gain[order], rtol=EXACT)


def test_precision_is_taken_from_one_scale_of_the_response_to_another(table, tmp_path):
    found = entered(copies_of(fit_of(table)), tmp_path)
    own = published_before(fit_of(table, "value ~ x").problem)
    gain = found.after.own_information(4, "fixed") / table["value"] ** 2
    # A difference over a ten-thousandth of the value stands for the derivative.
    np.testing.assert_allclose(own.fixed, gain, rtol=3e-4)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.assign(value=t["value"] * np.where(t.index == 3, 1.001, 1.0)),
        lambda t: t.drop(index=3).reset_index(drop=True),
        lambda t: t.assign(value=t["value"] / 1000),
        lambda t: t.assign(value=t["value"].round(1)),
        lambda t: t.assign(value=np.log1p(t["value"])),
        lambda t: t.assign(value=np.random.default_rng(1).permutation(t["value"] * 1.01)),
    ],
)
def test_a_corrected_table_is_not_taken_for_this_one_and_not_passed_over(table, tmp_path, change):
    entered(copies_of(fit_of(table)), tmp_path)
    corrected = fit_of(change(table))
    former = published_before(corrected.problem)
    assert (former.releases, former.copies, former.alike) == (0, 0, 1)
    assert not former.known.any()
    assert not former.fixed.any()
    found = ds.assess(copies_of(corrected, seed=6), floor=1e-9, exact=0, progress=False)
    assert found.verdict == "not judged"
    assert found.why.startswith("1 earlier release may be of these records, before a correction")
    assert found.why.endswith(
        "; by itself, every record keeps the floor of 1e-09 by the lower bounds"
    )


@pytest.mark.parametrize(
    ("name", "rows", "moved", "column", "alike"),
    [
        ("flats", 25, 0, "value", True),
        (None, 25, 22, "value", True),
        (None, 25, 23, "value", False),
        ("homes", 25, 25, "value", False),
        ("flats", 30, 30, "value", True),
        ("flats", 30, 30, "VALUE", True),
        ("flats", 30, 30, "worth", False),
        ("homes", 30, 30, "value", True),
        ("homes", 30, 30, "worth", True),
        ("flats", 25, 0, "worth", True),
    ],
)
def test_a_table_is_alike_by_its_places_or_its_size_and_a_name(
    table, tmp_path, name, rows, moved, column, alike
):
    table = table.drop_duplicates(list(COORDS)).reset_index(drop=True)
    table = pd.concat([table, table.iloc[:4].assign(east=[7.0, 8.0, 9.0, 10.0])], ignore_index=True)
    assert len(table.drop_duplicates(list(COORDS))) == 30
    entered(copies_of(fit_of(table)), tmp_path)
    other = table.assign(value=table["value"][::-1].to_numpy() * 1.1).iloc[:rows]
    other.loc[: moved - 1, "east"] += 0.01
    other = other.rename(columns={"value": column})
    problem = ds.prepare(other, f"log({column}) ~ x", coords=COORDS, name=name)
    former = published_before(problem)
    assert (former is not None and former.alike == 1) is alike


@pytest.mark.parametrize(
    ("name", "rows", "alike"), [("homes", 25, True), ("flats", 30, True), ("flats", 25, False)]
)
def test_where_the_places_of_a_release_are_not_known_its_name_or_size_decides(
    table, tmp_path, name, rows, alike
):
    entered(copies_of(fit_of(table)), tmp_path)
    [file] = [path for path in ledger_folder().glob("*.parquet")]
    pd.read_parquet(file).drop(columns=PLACE).to_parquet(file, index=False)  # an earlier version
    other = table.assign(value=table["value"] * 1.1).iloc[:rows]
    former = published_before(ds.prepare(other, "log(value) ~ x", coords=COORDS, name=name))
    assert (former is not None and former.alike == 1) is alike


def test_a_release_that_was_never_judged_is_found_by_its_places(table, tmp_path):
    gaps = table.assign(value=table["value"].where(table.index != 4))
    problem = ds.prepare(gaps, "log(value) ~ x", coords=COORDS, name="with gaps", missing="draw")
    quick = {"chains": 2, "warmup": 50, "samples": 50, "engine": "embedded", "progress": False}
    accept = {"accept_failed": True, "accept_few_draws": True}
    release = ds.synthesise(ds.fit(problem, seed=1, **quick), 4, seed=3, imputations=2, **accept)
    write_release(release, tmp_path / "gaps", report=False)
    publish(tmp_path / "gaps", to=tmp_path / "out", reason=REASON)
    [entry] = open_ledger().entries()
    assert not entry.judged
    whole = gaps.dropna().reset_index(drop=True)
    other = ds.prepare(whole, "log(value) ~ x", coords=COORDS, name="another name")
    former = published_before(other)
    assert (former.alike, former.releases) == (1, 0)


def test_what_was_published_after_the_verdict_is_added_up_though_it_was_before_the_writing(
    table, tmp_path
):
    late = copies_of(fit_of(table), seed=8)
    floor = 0.999 * float(ds.assess(late, exact=0, progress=False).sd.min())
    held = ds.assess(late, floor=floor, exact=0, progress=False)
    assert held.verdict == "met"
    entered(copies_of(fit_of(table)), tmp_path, "first")
    path = write_release(late, tmp_path / "late", assessment=held, report=False)
    judged(path, "ok", "met")
    with pytest.raises(DisclosureError, match="it misses its floor"):
        publish(path, to=tmp_path / "out")


def test_publishing_counts_the_limit_on_naming_too(tmp_path):
    """Each alone names no value too surely; together they do, though the floor is kept."""
    table = small_table(30, seed=9, shared=4)
    table["value"] = 200.0 + 50.0 * np.random.default_rng(2).permutation(30)
    one, two = (copies_of(fit_of(table), 1, seed=k) for k in (3, 5))
    largest = [ds.assess(r, floor=1e-6, exact=0, progress=False).naming.largest for r in (one, two)]
    limit = 1.0001 * max(largest)
    paths = []
    for name, release in (("one", one), ("two", two)):
        found = ds.assess(release, floor=1e-6, attribution=limit, exact=0, progress=False)
        paths.append(write_release(release, tmp_path / name, assessment=found, report=False))
        assert found.verdict == "met"
        judged(paths[-1], "ok", "met")
    publish(paths[0], to=tmp_path / "out one")
    with pytest.raises(DisclosureError, match="names values too surely"):
        publish(paths[1], to=tmp_path / "out two")
    done = publish(paths[1], to=tmp_path / "out two", reason=REASON)
    assert len(done.against) == 1
    assert "names values too surely" in done.against[0]


def test_a_corrected_table_published_meanwhile_holds_a_release_back(table, tmp_path):
    folder, found = written(copies_of(fit_of(table)), tmp_path / "one", floor=1e-9)
    assert found.verdict == "met"
    corrected = table.assign(value=table["value"] * np.where(table.index == 3, 1.001, 1.0))
    entered(copies_of(fit_of(corrected)), tmp_path, "two")
    with pytest.raises(DisclosureError, match=r"1 release of homes .30 records. with other values"):
        publish(folder, to=tmp_path / "out")
    publish(folder, to=tmp_path / "out", reason=REASON)


def test_records_that_nobody_can_tell_apart_count_as_the_one_of_which_most_was_told(
    table, tmp_path
):
    same = table.assign(value=table["value"].round(-1))
    same.loc[[5, 6], ["value", *COORDS]] = same.loc[5, ["value", *COORDS]].to_numpy()
    found = entered(copies_of(fit_of(same)), tmp_path)
    gain = found.after.own_information(4, "fixed")
    former = published_before(fit_of(same).problem)
    assert former.fixed[5] == former.fixed[6] == pytest.approx(max(gain[[5, 6]]), rel=EXACT)
    moved = same.assign(east=same["east"] + 0.01 * np.arange(30))
    by_value = published_before(fit_of(moved).problem)
    for value in same["value"].unique():
        rows = np.flatnonzero(same["value"] == value)
        np.testing.assert_allclose(by_value.fixed[rows], gain[rows].max(), rtol=EXACT)


def test_the_largest_of_each_group_is_taken_row_by_row():
    numbers = np.array([[1.0, 3.0, 2.0, 5.0], [4.0, 0.0, 7.0, 6.0]])
    found = largest_of_each(numbers, np.array([0, 0, 1, 1]))
    np.testing.assert_array_equal(found, [[3, 3, 5, 5], [4, 4, 7, 7]])


def test_a_fingerprint_depends_on_its_key_and_not_on_the_order_of_rows(table):
    problem = fit_of(table).problem
    other = fit_of(table[::-1].reset_index(drop=True)).problem
    one, two = record_order(problem), record_order(other)
    assert one.fingerprints(b"k" * 32) == two.fingerprints(b"k" * 32)
    assert not set(one.fingerprints(b"k" * 32)) & set(one.fingerprints(b"K" * 32))


# What a floor says of all of them


def test_a_floor_that_each_release_meets_may_be_missed_by_two(table, tmp_path):
    first, second = (copies_of(fit_of(table), seed=s) for s in (3, 5))
    sds = [ds.assess(r, exact=0, former=False, progress=False).sd.min() for r in (first, second)]
    floor = 0.9 * min(sds)
    early, found = written(first, tmp_path / "early", floor)
    late, other = written(second, tmp_path / "late", floor)
    assert found.verdict == other.verdict == "met"
    publish(early, to=tmp_path / "out")
    with pytest.raises(DisclosureError, match=r"since it was written \(1 release\) it misses its"):
        publish(late, to=tmp_path / "more")
    assert not (tmp_path / "more").exists()
    assert ds.assess(second, floor=floor, exact=0, progress=False).verdict == "missed"
    publish(late, to=tmp_path / "more", reason=REASON)
    assert len(open_ledger().entries()) == 2


def test_two_processes_at_once_do_not_both_publish_what_only_one_may(table, tmp_path):
    releases = [copies_of(fit_of(table), seed=s) for s in (3, 5)]
    sds = [ds.assess(r, exact=0, former=False, progress=False).sd.min() for r in releases]
    for number, release in enumerate(releases):
        written(release, tmp_path / f"r{number}", 0.9 * min(sds))
    program = "import sys\nfrom dsstan.release.publication.publish import publish\n"
    program += "publish(sys.argv[1], to=sys.argv[2])"
    children = [
        subprocess.Popen(
            [sys.executable, "-c", program, tmp_path / f"r{k}", tmp_path / f"out{k}"],
            stderr=subprocess.PIPE,
            text=True,
        )
        for k in (0, 1)
    ]
    said = [child.communicate()[1] for child in children]
    assert sorted(child.returncode for child in children) == [0, 1], said
    assert "it misses its floor" in "".join(said)
    assert len(open_ledger().entries()) == 1


def test_a_former_release_that_was_never_judged_leaves_the_next_not_judged(table, tmp_path):
    release = copies_of(fit_of(table))
    entered(release, tmp_path)
    [entry] = open_ledger().entries()
    open_ledger().enter(replace(entry, judged=False), None)
    found = ds.assess(copies_of(fit_of(table), seed=5), floor=1e-6, exact=0, progress=False)
    assert found.verdict == "not judged"
    assert "1 whose values are not counted" in str(found.after.former)


def test_what_is_left_meets_the_floor_and_one_copy_more_does_not(table, tmp_path):
    release = copies_of(fit_of(table))
    found = ds.assess(release, exact=0, progress=False)
    floor = float(found.after.sd(12, variances="known").min())
    entered(release, tmp_path, floor=floor)
    [one] = tables_in(open_ledger())
    gain = open_ledger().information(one.last)

    def planned(count):
        more = np.minimum(count * gain["next_copy"], np.ceil(count / 4) * gain["next_release"])
        return float(MARGIN[1] * ((gain["alone"] + gain["known"] + more) ** -0.5).min())

    assert 0 < one.left < MOST_COPIES
    assert planned(one.left) >= floor * (1 - EXACT)
    assert planned(one.left + 1) < floor


def test_the_ledger_leaves_the_sd_that_an_assessment_reports(table, tmp_path):
    first, second = copies_of(fit_of(table)), copies_of(fit_of(table), seed=5)
    entered(first, tmp_path)
    for exact in (0, 1):
        found = ds.assess(second, floor=0.01, exact=exact, progress=False)
        write_release(
            second,
            tmp_path / f"exact{exact}",
            assessment=found,
            report=False,
            accept_below_floor=True,
            reason=REASON,
        )
        gain = read_note(tmp_path / f"exact{exact}" / "confidential").information
        order = record_order(second.problem).rows
        left = sd_left(gain, gain["known"] + found.after.former.known[order])
        bounded = np.ones(30, dtype=bool)
        if exact:
            bounded[np.isin(order, found.exact.records["position"])] = False
        np.testing.assert_allclose(left[bounded], found.sd[order][bounded], rtol=EXACT)
        assert np.all(left <= found.sd[order] * (1 + EXACT))


def test_without_a_floor_nobody_knows_what_is_left(table, tmp_path):
    entered(copies_of(fit_of(table)), tmp_path, floor=None)
    [one] = tables_in(open_ledger())
    assert one.left is None


# The folder


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_the_ledger_is_for_its_owner_alone_whatever_the_umask(table, tmp_path, ledger, mask):
    before = os.umask(mask)
    try:
        entered(copies_of(fit_of(table)), tmp_path)
    finally:
        os.umask(before)
    assert mode(ledger) == 0o700
    assert {mode(path) for path in ledger.iterdir()} == {0o600}
    for name in ("ledger.json", "ledger.parquet"):
        assert mode(tmp_path / "one" / "confidential" / name) == 0o600


def test_no_value_and_no_key_of_it_is_in_any_file(table, tmp_path, ledger):
    entered(copies_of(fit_of(table)), tmp_path)
    values = table["value"].to_numpy()
    for folder in (ledger, tmp_path / "one" / "confidential"):
        for path in folder.glob("*ledger*") if folder != ledger else folder.iterdir():
            content = path.read_bytes()
            for value in values:
                for scale in (value, np.log(value), float(f"{value:.6g}")):
                    assert np.float64(scale).tobytes() not in content
                assert f"{value:.6g}".encode() not in content
            assert path.name == "key" or Ledger(ledger).key.hex().encode() not in content


def test_nothing_is_made_by_looking(table, ledger):
    assert published_before(fit_of(table).problem) is None
    assert not ledger.exists()


def test_the_state_folder_of_the_user_is_the_place_by_default(monkeypatch):
    monkeypatch.delenv(VARIABLE)
    assert ledger_folder().is_relative_to(os.environ["XDG_STATE_HOME"])
    assert ledger_folder().name == "ledger"


def test_a_release_is_published_with_the_ledger_it_was_judged_with(
    table, tmp_path, ledger, monkeypatch
):
    folder, _ = written(copies_of(fit_of(table)), tmp_path / "one")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "other"))
    open_ledger(make=True)
    with pytest.raises(InputError, match="Name its place with --ledger"):
        publish(folder, to=tmp_path / "out", ledger=tmp_path / "other")
    with pytest.raises(InputError, match=f"it was at {ledger}"):
        publish(folder, to=tmp_path / "out")
    ledger.rename(tmp_path / "moved")
    with pytest.raises(InputError, match="is not at"):
        publish(folder, to=tmp_path / "out")
    publish(folder, to=tmp_path / "out", ledger=tmp_path / "moved")
    assert len(Ledger(tmp_path / "moved").entries()) == 1
    monkeypatch.setenv(VARIABLE, str(tmp_path / "moved"))
    publish(folder, to=tmp_path / "again")


def test_where_no_ledger_can_be_made_a_release_needs_a_reason(table, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / "ledger"))
    release = copies_of(fit_of(table))
    with pytest.warns(DsstanWarning, match=r"can't be made.*written without it"):
        folder, _ = written(release, tmp_path / "one")
    with pytest.raises(DisclosureError, match="it was written without a ledger"):
        publish(folder, to=tmp_path / "out")
    publish(folder, to=tmp_path / "out", reason=REASON)


@pytest.mark.parametrize("damage", ["releases.json", "key"])
def test_a_damaged_ledger_is_named_and_not_taken_for_an_empty_one(table, tmp_path, ledger, damage):
    entered(copies_of(fit_of(table)), tmp_path)
    (ledger / damage).write_text("{")
    with pytest.raises(InputError, match=damage):
        published_before(fit_of(table).problem)


PROGRAM = """
import sys, time
from pathlib import Path
from dsstan.release.publication.publish import publish
def wait(*arguments):
    print("here", flush=True)
    time.sleep(60)
Path.rename = wait
publish(sys.argv[1], to=sys.argv[2])
"""


@pytest.mark.parametrize("kill", [signal.SIGTERM, signal.SIGKILL])
def test_a_publication_that_is_killed_counts_until_it_is_settled(table, tmp_path, kill):
    folder, _ = written(copies_of(fit_of(table)), tmp_path / "one")
    command = [sys.executable, "-c", PROGRAM, folder, tmp_path / "out"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
        assert child.stdout.readline() == b"here\n"
        child.send_signal(kill)
    entries = open_ledger().entries()
    if kill == signal.SIGTERM:  # taken back
        assert entries == ()
        assert published_before(fit_of(table).problem) is None
    else:  # nobody knows whether it is out
        assert [p["complete"] for p in entries[0].published] == [False]
        assert published_before(fit_of(table).problem).releases == 1
    publish(folder, to=tmp_path / "out")
    [entry] = open_ledger().entries()
    assert [p["complete"] for p in entry.published] == [True]


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="needs another user")
def test_a_ledger_that_another_user_could_change_is_not_used(table, tmp_path, ledger):
    entered(copies_of(fit_of(table)), tmp_path)
    ledger.chmod(0o777)
    with pytest.raises(InputError, match="could replace what is made there"):
        open_ledger()
    ledger.chmod(0o700)
    os.chown(ledger, 65534, 65534)
    with pytest.raises(InputError, match="belongs to another user"):
        open_ledger()


def test_a_ledger_without_its_list_is_no_empty_one(tmp_path):
    book = open_ledger(tmp_path / "ledger", make=True)
    assert book.entries() == ()
    places = pd.DataFrame({PLACE: np.arange(3, dtype=np.uint64)})
    with book.locked():
        book.enter(read_entry(ENTRY), places)
    assert book.entries() == (read_entry(ENTRY),)
    (book.folder / ENTRIES).unlink()
    with pytest.raises(
        InputError, match=r"lacks releases\.json, so that what was published is not"
    ):
        book.entries()


def test_a_ledger_of_an_earlier_version_with_which_nothing_was_published_has_no_list(tmp_path):
    book = open_ledger(tmp_path / "ledger", make=True)
    (book.folder / ENTRIES).unlink()
    assert book.entries() == ()
    with book.locked():
        book.enter(read_entry(ENTRY), pd.DataFrame({PLACE: np.arange(3, dtype=np.uint64)}))
    assert book.entries() == (read_entry(ENTRY),)


def test_a_ledger_that_lost_its_key_is_not_begun_anew(tmp_path):
    book = open_ledger(tmp_path / "ledger", make=True)
    content = json.dumps({"releases": [ENTRY]})
    (book.folder / ENTRIES).write_text(content)
    (book.folder / "key").unlink()
    for make in (False, True):
        with pytest.raises(InputError, match="lacks its key"):
            open_ledger(book.folder, make=make)
    assert (book.folder / ENTRIES).read_text() == content


@pytest.mark.parametrize("part", [".", "key", ENTRIES])
def test_a_ledger_of_which_another_user_owns_a_part_is_not_used(tmp_path, part):
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    book = open_ledger(tmp_path / "ledger", make=True)
    os.chown(book.folder / part, 12345, -1)
    with pytest.raises(InputError, match="belongs to another user"):
        open_ledger(book.folder)


@pytest.mark.parametrize("column", ["alone", "fixed", "known", "margin", "next_copy", "same_value"])
@pytest.mark.parametrize("value", [None, np.nan, -1, "x", 9])
def test_numbers_that_would_pass_every_comparison_are_refused(tmp_path, column, value):
    numbers = {name: np.arange(3.0) + 0.5 for name in COLUMNS} | {"least": [np.nan, 0.1, 0.2]}
    found = pd.DataFrame(numbers).astype({name: "int64" for name in GROUPS})
    if value is not None:
        found[column] = ["x"] * 3 if value == "x" else [found[column][0], found[column][1], value]
    found.to_parquet(tmp_path / "r.parquet", index=False)
    if value is None or (value == 9 and column not in GROUPS):
        pd.testing.assert_frame_equal(read_information(tmp_path / "r.parquet", 3), found)
        return
    with pytest.raises(InputError, match="is not what a release reveals of 3 records"):
        read_information(tmp_path / "r.parquet", 3)


ENTRY = {
    **{"release": "0a", "column": "value", "table": "homes", "records": 3, "copies": 2},
    **{"transform": "log", "responses": "1b", "places": "2c", "floor": "10%", "judged": True},
    "counted": ["3d"],
    "published": [{"to": "out", "at": "2020-01-01", "by": "me", "complete": True}],
    "collected": {"size": "4e"},
}


def test_an_entry_comes_back_from_json():
    assert json.loads(json.dumps(asdict(read_entry(ENTRY)))) == ENTRY
    older = {key: value for key, value in ENTRY.items() if key != "collected"}
    assert read_entry(older) == replace(read_entry(ENTRY), collected={})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("copies", "x"), ("copies", 0), ("records", None), ("judged", 1), ("column", 5)],
        *[("release", "../victim"), ("responses", None), ("transform", "cube"), ("floor", 3)],
        *[("published", [{}]), ("published", 3), ("counted", [3]), ("more", 1)],
        ("published", [{"to": "a", "at": None, "by": "b", "complete": True}]),
        *[("collected", {"size": 3}), ("collected", {"size": "no"}), ("collected", 3)],
    ],
)
def test_an_entry_of_other_kinds_is_refused(tmp_path, key, value):
    book = open_ledger(tmp_path / "ledger", make=True)
    content = {"releases": [ENTRY | {key: value}]}
    (book.folder / ENTRIES).write_text(json.dumps(content))
    with pytest.raises(InputError, match="can't be read: restore it"):
        book.entries()


@pytest.mark.parametrize("renamed", [False, True])
@pytest.mark.parametrize("true_first", [False, True])
def test_true_values_beside_copies_of_them_are_named_whatever_they_are_called(
    table, tmp_path, true_first, renamed
):
    """One release has copies of value, another copies of worth given value as it is."""
    table = table.assign(worth=np.exp(np.random.default_rng(5).normal(size=len(table))))
    protecting = copies_of(fit_of(table[["east", "north", "x", "value"]]))
    name = "price" if renamed else "value"
    other = table.rename(columns={"value": name})
    showing = copies_of(fit_of(other, f"log(worth) ~ log({name})"))
    first, second = (showing, protecting) if true_first else (protecting, showing)
    entered(first, tmp_path)
    folder, found = written(second, tmp_path / "two")
    said = (
        "an earlier release published the true values of value"
        if true_first
        else f"it publishes the true values of {name}, of which an earlier release has copies"
    )
    assert found.verdict == "missed"
    assert said in found.why
    assert said in published_before(second.problem).uncounted
    screen = " ".join(line.text for line in release_screen(second, found, None))
    assert said in screen
    assert "or publish one of the two and no other" in screen
    with pytest.raises(DisclosureError, match=said) as refused:
        publish(folder, to=tmp_path / "out")
    assert str(refused.value).count(said) == 1
    done = publish(folder, to=tmp_path / "out", reason=REASON)
    assert any(said in one for one in done.against)
    bare = {one.last.column: (one.left, one.bare_in) for one in tables_in(open_ledger())}
    assert bare == {"value": (0, "worth"), "worth": (bare["worth"][0], None)}


@pytest.mark.parametrize(
    "written_as",
    [
        lambda v: v.map("${:,.12f}".format),
        lambda v: v.map(repr).astype("category"),
        lambda v: v.map(lambda one: Decimal(repr(one))),
        lambda v: v.astype(object),
        lambda v: v.astype("Float64"),
    ],
    ids=["money", "category", "decimal", "object", "nullable"],
)
def test_true_values_are_known_in_whatever_type_they_go_out(table, tmp_path, written_as):
    entered(copies_of(fit_of(table)), tmp_path)
    other = table.assign(price=written_as(table["value"]), worth=table["x"].abs() + 1.0)
    other = other.assign(east=table["east"] + 500.0)
    problem = ds.prepare(other, "log(worth) ~ 1", coords=COORDS, publish=("price",))
    [said] = published_before(problem).laid_bare
    assert said.startswith("it publishes the true values of price")


def test_true_values_are_known_where_the_table_is_read_by_row_groups(table, tmp_path):
    entered(copies_of(fit_of(table)), tmp_path)
    other = table.rename(columns={"value": "price"})
    other = other.assign(worth=table["x"].abs() + 1.0, east=table["east"] + 500.0)
    other.to_parquet(tmp_path / "homes.parquet", row_group_size=7)
    problem = prepare_parquet(
        tmp_path / "homes.parquet", "log(worth) ~ 1", coords=COORDS, publish=("price",)
    )
    assert "price" not in problem.table
    [said] = published_before(problem).laid_bare
    assert said.startswith("it publishes the true values of price")


@pytest.mark.parametrize("read", [read_information, read_places])
def test_a_library_that_can_not_be_loaded_is_no_damage_of_a_file(tmp_path, monkeypatch, read):
    (tmp_path / "one.parquet").write_bytes(b"whatever")

    def missing(*arguments, **options):
        raise ImportError("pyarrow")

    monkeypatch.setattr(pd, "read_parquet", missing)
    with pytest.raises(ImportError, match="pyarrow"):
        read(tmp_path / "one.parquet", 30)
