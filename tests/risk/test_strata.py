"""A table whose strata have models of their own is judged by its worst stratum."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from conftest import small_table
from dsstan.copies.strata import fit_strata
from dsstan.risk.strata import assess_strata

QUICK = {
    "coords": ("east", "north"),
    "threshold": 0.15,
    "engine": "embedded",
    "warmup": 500,
    "samples": 2000,
    "progress": False,
}


@pytest.fixture(scope="module")
def release():
    """Two strata of 40 records; the values of the second vary ten times less."""
    table = pd.concat([small_table(40, seed=1), small_table(40, seed=2)], ignore_index=True)
    table["part"] = np.repeat(["wide", "narrow"], 40)
    narrow = table["part"] == "narrow"
    table.loc[narrow, "value"] = 5.0 * (table.loc[narrow, "value"] / 5.0) ** 0.1
    return fit_strata(table, "log(value) ~ x", by="part", copies=3, seed=7, least=30, **QUICK)


def test_every_stratum_is_assessed_as_a_release_of_its_own(release):
    found = assess_strata(release, floor=0.001, attribution=1, progress=False)
    assert found.verdict == "met"
    for name, part in release.parts.items():
        alone = ds.assess(part, floor=0.001, attribution=1, progress=False)
        np.testing.assert_array_equal(found.parts[name].sd, alone.sd)
    assert list(found.table()["records"]) == [40, 40]


def test_the_worst_stratum_decides_and_is_named_in_the_first_line(release):
    smallest = {
        name: ds.assess(part, progress=False).sd.min() for name, part in release.parts.items()
    }
    assert smallest["narrow"] < smallest["wide"]
    floor = float(np.sqrt(smallest["narrow"] * smallest["wide"]))
    found = assess_strata(release, floor=floor, attribution=1, progress=False)
    assert found.parts["wide"].verdict == "met"
    assert found.verdict == "missed"
    assert found.worst == "narrow"
    assert str(found).splitlines()[0].startswith("DISCLOSURE: MISSED: in stratum 'narrow', ")


def test_strata_without_a_floor_are_not_judged(release):
    found = assess_strata(release, progress=False)
    assert found.verdict == "not judged"
    assert "DISCLOSURE: NOT JUDGED" in str(found)
