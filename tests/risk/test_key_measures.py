"""repU, DiSCO and TCAP against counts by hand and against their definition record by record."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import dsstan as ds
from dsstan.core.display import WIDTH
from dsstan.core.errors import InputError
from dsstan.risk.keys.key_measures import MEASURES, key_measures, measures_of

# Keys and targets, by hand. Original: a-x, a-x, b-x, c-x, c-y, d-y, e-y, f-x. Copy: a-x, a-x,
# b-y, c-y, d-y, d-y, e-y, g-x. Numbers: a 0 ... g 6; x 0, y 1.
ORIGINAL = (np.array([0, 0, 1, 2, 2, 3, 4, 5]), np.array([0, 0, 0, 0, 1, 1, 1, 0]))
COPY = (np.array([0, 0, 1, 2, 3, 3, 4, 6]), np.array([0, 0, 1, 1, 1, 1, 1, 0]))
BY_HAND = {
    "UiO": 4 / 8,  # b, d, e, f
    "UiS": 4 / 8,  # b, c, e, g
    "UiOiS": 3 / 8,  # b, d, e
    "repU": 2 / 8,  # b, e
    "Dorig": 6 / 8,  # all but c
    "iS": 7 / 8,  # all but f
    "DiS": 7 / 8,  # every key that is found has one target
    "DiSCO": 5 / 8,  # a, a, c-y, d, e; b and c-x are wrong
    "DiSDiO": 4 / 8,  # the same without c
    "DCAP": 5 / 8,
    "TCAP": 5 / 7,
}


def test_every_measure_is_the_count_by_hand():
    found = measures_of(*ORIGINAL, *COPY)
    assert list(found) == list(MEASURES)
    assert found == pytest.approx({name: 100 * share for name, share in BY_HAND.items()})


def record_by_record(keys, target, copy_keys, copy_target) -> dict[str, float]:
    """The definitions of the vignette in their words, one record after another."""
    d, s = list(zip(keys, target, strict=True)), list(zip(copy_keys, copy_target, strict=True))
    times, copy_times = Counter(keys), Counter(copy_keys)
    shown = {q: [t for k, t in s if k == q] for q in times}
    true = {q: [t for k, t in d if k == q] for q in times}
    n = len(d)

    def share(holds) -> float:
        return 100 * sum(bool(holds(q, t)) for q, t in d) / n

    out = {
        "UiO": share(lambda q, t: times[q] == 1),
        "UiS": 100 * sum(copy_times[q] == 1 for q, _ in s) / len(s),
        "UiOiS": share(lambda q, t: times[q] == 1 and copy_times[q] > 0),
        "repU": share(lambda q, t: times[q] == 1 and copy_times[q] == 1),
        "Dorig": share(lambda q, t: len(set(true[q])) == 1),
        "iS": share(lambda q, t: copy_times[q] > 0),
        "DiS": share(lambda q, t: len(set(shown[q])) == 1),
        "DiSCO": share(lambda q, t: set(shown[q]) == {t}),
        "DiSDiO": share(lambda q, t: set(shown[q]) == {t} and set(true[q]) == {t}),
        "DCAP": 100 * sum(shown[q].count(t) / len(shown[q]) for q, t in d if shown[q]) / n,
    }
    return {**out, "TCAP": 100 * out["DiSCO"] / out["DiS"]}


@pytest.mark.parametrize("seed", range(5))
def test_the_tables_count_what_the_definitions_say_of_each_record(seed):
    rng = np.random.default_rng(seed)
    keys, copy_keys = rng.integers(0, 25, 60), rng.integers(3, 30, 45)
    target, copy_target = rng.integers(0, 3, 60), rng.integers(0, 4, 45)
    found = measures_of(keys, target, copy_keys, copy_target)
    assert found == pytest.approx(record_by_record(keys, target, copy_keys, copy_target))


def test_a_copy_without_any_of_the_keys_says_nothing():
    found = measures_of(np.array([0, 1]), np.array([0, 1]), np.array([2, 3]), np.array([0, 1]))
    assert found["repU"] == found["iS"] == found["DiSCO"] == found["DCAP"] == 0
    assert np.isnan(found["TCAP"])


@pytest.fixture(scope="module")
def release():
    table = ds.load_simulated().sample(60, random_state=2).reset_index(drop=True)
    problem = ds.prepare(table, "log(income) ~ 1", coords=("s1", "s2"))
    fit = ds.fit(problem, seed=1, engine="direct", progress=False)
    return ds.synthesise(fit, copies=3, seed=2, progress=False)


def test_exact_places_single_everybody_out_and_disco_counts_values_in_their_own_group(release):
    found = key_measures(release, groups=20)
    assert (found.table[["UiO", "repU", "iS", "DiS"]] == 100).all(axis=None)
    truth = release.problem.original()
    cuts = np.quantile(truth, np.arange(1, 20) / 20)
    same = np.searchsorted(cuts, release.values, "right") == np.searchsorted(cuts, truth, "right")
    assert found.table["DiSCO"].to_numpy() == pytest.approx(100 * same.mean(axis=1))
    assert 0 < found.table["DiSCO"].mean() < 100
    assert found.table["TCAP"].to_numpy() == pytest.approx(found.table["DiSCO"].to_numpy())


def test_coarse_places_hide_some_and_values_as_they_are_are_never_repeated(release):
    coarse = key_measures(release, groups=5, key_groups=3)
    assert coarse.table["repU"].max() < 100
    assert key_measures(release).table["DiSCO"].max() == 0


def test_the_line_names_the_three_and_the_table_says_what_each_is(release):
    found = key_measures(release, groups=20.0)
    assert repr(found).startswith("repU 100.0%, DiSCO ")
    assert all(name in str(found) for name in MEASURES)
    assert "income, in 20 groups" in str(found)
    assert max(map(len, str(found).splitlines())) <= WIDTH
    assert len(str(found).splitlines()) == len(MEASURES) + 4


@pytest.mark.parametrize("name", ["groups", "key_groups"])
def test_two_groups_are_the_fewest(release, name):
    assert key_measures(release, **{name: 2}).table["UiO"].notna().all()
    with pytest.raises(InputError, match=name):
        key_measures(release, **{name: 1})


@pytest.mark.parametrize("keys", [["income"], ["s1", "nowhere"], []])
def test_keys_that_are_no_other_columns_are_refused(release, keys):
    with pytest.raises(InputError, match="keys must be columns"):
        key_measures(release, keys)
