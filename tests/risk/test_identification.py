"""Risks of identification, held against matches counted by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

import dsstan as ds
from dsstan.copies.result import Synthesis
from dsstan.core.errors import InputError
from dsstan.models.weights import own_weights
from dsstan.risk.keys.identification import identification, match
from dsstan.risk.keys.key_variables import merged
from dsstan.table.problem import record_positions

EXACT = 1e-12
"""Probabilities are ratios of small whole numbers: only rounding may differ."""

TRUTH = np.array([10.0, 20.0, 30.0, -40.0, 0.0])
FLAGGED = np.array([1.0, 0.0, 0.0, 1.0, 0.0])


def table_of(truth=TRUTH, **columns):
    """Records 0 and 1 share a site; kind parts them from the rest."""
    n = len(truth)
    table = pd.DataFrame({"u": [0.0, 0.0, 1.0, 2.0, 3.0][:n], "v": 0.5 * np.arange(n) // 1})
    table.loc[1, "v"] = table.loc[0, "v"]
    return table.assign(kind=list("aabbb")[:n], value=truth, **columns)


def release_of(fit, values, truth=TRUTH, weights=FLAGGED, **columns):
    """A release of made-up copies of made-up records."""
    problem = ds.prepare(table_of(truth, **columns), "value ~ 1", coords=("u", "v"))
    made = dataclasses.replace(
        fit,
        problem=problem,
        kind="unrestricted" if weights is None else "restricted",
        weights=None if weights is None else own_weights(problem, weights),
        start=None,
    )
    picks = np.zeros((len(values), 2), dtype=np.intp)
    return Synthesis(made, np.asarray(values, dtype=float), "w", picks, 1, 0.0)


def test_a_record_within_the_tolerance_shares_the_probability_with_the_others_there():
    # Target 10 +- 1 finds records 0 and 2 in copy 0, record 2 alone in copy 1.
    values = np.array([[10.5, 20.0, 9.0], [50.0, 20.0, 11.0]])
    found = match(values, np.array([10.0, 20.0, 30.0]), np.ones(3))
    np.testing.assert_allclose(found.right, [0.25, 1.0, 1 / 3], atol=EXACT)
    np.testing.assert_array_equal(found.ties, [1, 1, 3])
    np.testing.assert_array_equal(found.found, [False, True, True])


def test_probabilities_are_averaged_before_the_largest_is_taken():
    # Record 0 is the one match in copy 0. Records 1 and 2 share copies 1 to 4, so that
    # most copies taken alone point away from it, and so does the average: 1/5 against 2/5.
    values = np.array([[1.0, 9.0, 9.0]] + [[9.0, 1.0, 1.0]] * 4)
    found = match(values, np.array([1.0, 5.0, 5.0]), np.full(3, 0.5))
    assert found.right[0] == pytest.approx(0.2, abs=EXACT)
    assert (found.ties[0], found.found[0]) == (2, False)
    # One copy less with the two: 1/3 against 1/3, a tie of three.
    found = match(values[:3], np.array([1.0, 5.0, 5.0]), np.full(3, 0.5))
    assert (found.ties[0], found.found[0]) == (3, True)


def test_the_same_sum_in_another_order_is_a_tie():
    # Records 0 and 1 get 1/2, 1/3 and 1/10 of three copies each, in opposite orders, whose
    # floating-point sums differ; every other record is in one copy only.
    sizes = [2, 3, 10, 10, 3, 2]
    n = 2 + sum(sizes) - 6
    values, next_one = np.full((6, n), 100.0), 2
    for copy, size in enumerate(sizes):
        values[copy, [copy // 3, *range(next_one, next_one + size - 1)]] = 0.0
        next_one += size - 1
    assert next_one == n
    found = match(values, np.zeros(n), np.zeros(n))
    assert found.right[0] != found.right[1]
    np.testing.assert_array_equal(found.ties, np.full(n, 2))
    np.testing.assert_array_equal(found.found, np.arange(n) < 2)


def test_copies_without_a_match_say_nothing():
    values = np.array([[1.0, 2.0], [50.0, 60.0], [70.0, 80.0]])
    found = match(values, np.array([1.0, 2.0]), np.zeros(2))
    np.testing.assert_allclose(found.right, [2 / 3, 2 / 3], atol=EXACT)
    nothing = match(values[1:], np.array([1.0, 2.0]), np.zeros(2))
    np.testing.assert_array_equal(nothing.right, [0.5, 0.5])
    np.testing.assert_array_equal(nothing.ties, [2, 2])
    assert nothing.found.all()


def test_keys_keep_other_records_out():
    values, truth = np.array([[1.0, 1.0, 1.0, 5.0]]), np.array([1.0, 1.0, 1.0, 5.0])
    found = match(values, truth, np.zeros(4), np.array([7, 7, 3, 3]))
    np.testing.assert_array_equal(found.right, [0.5, 0.5, 1.0, 1.0])
    np.testing.assert_array_equal(found.ties, [2, 2, 1, 1])


@pytest.mark.parametrize("block", [1, 7, 2**22])
def test_blocks_change_nothing(monkeypatch, block):
    rng = np.random.default_rng(1)
    values, truth = rng.integers(0, 6, (4, 30)) * 1.0, rng.integers(0, 6, 30) * 1.0
    keys = rng.integers(0, 3, 30)
    before = match(values, truth, np.ones(30), keys)
    monkeypatch.setattr("dsstan.risk.keys.identification._BLOCK", block)
    after = match(values, truth, np.ones(30), keys)
    for name in ("right", "ties", "found"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))


def test_each_target_agrees_with_a_loop_over_its_definition():
    rng = np.random.default_rng(2)
    values, truth = rng.normal(size=(3, 25)), rng.normal(size=25)
    tolerance, keys = rng.uniform(0, 0.8, 25), rng.integers(0, 4, 25)
    found = match(values, truth, tolerance, keys)
    for i in range(25):
        group = [j for j in range(25) if keys[j] == keys[i]]
        share = dict.fromkeys(group, 0.0)
        for copy in values:
            near = [j for j in group if abs(copy[j] - truth[i]) <= tolerance[i]] or group
            for j in near:
                share[j] += 1 / len(near) / len(values)
        best = max(share.values())
        top = [j for j in group if share[j] > best - EXACT]
        assert found.right[i] == pytest.approx(share[i], abs=EXACT)
        assert (found.ties[i], found.found[i]) == (len(top), i in top)


def test_measures_are_those_of_reiter_and_mitra(free):
    # Without a place, within 1 of the truth: 0 finds itself; 1 finds records 1 and 2;
    # 2 finds record 3 alone; 3 finds nobody and guesses among five; 4 finds itself.
    release = release_of(free, [[10.0, 20.0, 20.5, 30.0, 0.0]])
    risks = identification(release, absolute=1.0, coordinates=None)
    np.testing.assert_array_equal(risks.records["ties_restricted"], [1, 2, 1, 5, 1])
    np.testing.assert_array_equal(risks.records["found_restricted"], [1, 1, 0, 1, 1])
    expected = {"all": 1 + 1 / 2 + 0 + 1 / 5 + 1, "flagged": 1 + 1 / 5, "unflagged": 1 / 2 + 1}
    for group, value in expected.items():
        found = risks.get("expected_match_risk", "restricted", group)
        assert found == pytest.approx(value, abs=EXACT)
    assert risks.get("true_match_rate", "restricted") == pytest.approx(2 / 5)
    assert risks.get("unique_matches", "restricted") == 3
    assert risks.get("false_match_rate", "restricted") == pytest.approx(1 / 3)
    assert risks.get("targets", "restricted", "flagged") == 2
    assert risks.get("expected_match_risk", "keys") == pytest.approx(1.0)


def test_without_a_unique_match_there_is_no_false_match_rate_rather_than_nan(free):
    risks = identification(release_of(free, [[900.0] * 5]), coordinates=None)
    assert risks.get("unique_matches", "restricted") == 0
    assert risks.get("false_match_rate", "restricted") is None
    assert risks.get("expected_match_risk", "restricted") == pytest.approx(1.0)
    assert np.isfinite(risks.summary["value"]).all()
    assert "nan" not in str(risks).lower()


def test_exact_places_give_identification_and_the_result_says_so(free):
    # A false low: every copy is far from the truth, and yet the address has the record.
    risks = identification(release_of(free, [[900.0] * 5]))
    assert risks.given
    assert "given" in str(risks)
    assert "3 of 5 records" in risks.note
    np.testing.assert_array_equal(risks.records["alone"], [False, False, True, True, True])
    assert risks.get("expected_match_risk", "restricted") == pytest.approx(2 * 1 / 2 + 3)


@pytest.mark.parametrize("coordinates", [0.9, None])
def test_a_low_number_for_a_vague_place_comes_with_the_warning_that_places_are_exact(
    free, coordinates
):
    risks = identification(release_of(free, [[900.0] * 5]), coordinates=coordinates)
    assert not risks.given
    assert "exact places" in risks.note
    assert "3 of 5 records" in str(risks)


def test_keys_single_records_out_even_at_a_shared_site(free):
    release = release_of(free, [[900.0] * 5], sex=[0, 1, 0, 0, 0])
    assert identification(release, keys=["sex"]).records["alone"].all()
    assert not identification(release, keys=["kind"]).records["alone"][:2].any()


def test_where_all_share_place_and_keys_identification_is_not_given(free):
    table = pd.DataFrame({"u": [0, 0, 1, 1], "v": [0, 0, 1, 1], "value": [1.0, 2.0, 3.0, 4.0]})
    problem = ds.prepare(table, "value ~ 1", coords=("u", "v"))
    made = dataclasses.replace(free, problem=problem)
    values = problem.original()[None]
    release = Synthesis(made, values, "w", np.zeros((1, 2), dtype=np.intp), 1, 0.0)
    risks = identification(release)
    assert not risks.given
    assert risks.note == "Copies keep exact places, but every record shares its place and keys."
    assert risks.get("true_match_rate", "unrestricted") == 1.0
    vague = identification(release, coordinates=5.0)
    assert "exact places" not in vague.note


def test_a_grid_holds_the_places_of_one_cell_together(free):
    release = release_of(free, [TRUTH])
    candidates = identification(release, coordinates=1.5).records["candidates"]
    # Places (0, 0), (0, 0), (1, 1), (2, 1), (3, 2): cells of 1.5 from the lower left.
    np.testing.assert_array_equal(candidates, [3, 3, 3, 1, 1])
    assert (identification(release, coordinates=100.0).records["candidates"] == 5).all()


def test_missing_keys_are_a_value_of_their_own(free):
    release = release_of(free, [TRUTH], zone=["x", None, None, "x", "y"])
    candidates = identification(release, keys=["zone"], coordinates=None).records["candidates"]
    np.testing.assert_array_equal(candidates, [2, 2, 2, 2, 1])


@pytest.mark.parametrize("tolerance", [{}, {"relative": 0.0}, {"absolute": 0.0}])
@pytest.mark.parametrize("copies", [1, 2])
def test_copies_equal_to_the_original_have_the_largest_risk(free, tolerance, copies):
    release = release_of(free, np.tile(TRUTH, (copies, 1)))
    risks = identification(release, coordinates=None, **tolerance)
    assert risks.get("expected_match_risk", "restricted") == 5.0
    assert risks.get("true_match_rate", "restricted") == 1.0
    assert risks.get("false_match_rate", "restricted") == 0.0


def test_tied_true_values_share_the_risk(free):
    truth = np.array([5.0, 5.0, 5.0, 1.0, 2.0])
    risks = identification(release_of(free, [truth], truth), coordinates=None)
    np.testing.assert_array_equal(risks.records["ties_restricted"], [3, 3, 3, 1, 1])
    assert risks.get("expected_match_risk", "restricted") == pytest.approx(3.0)


def test_one_who_does_not_know_the_response_has_the_keys_alone(free):
    release = release_of(free, [TRUTH, TRUTH + 500])
    risks = identification(release, absolute=np.inf, coordinates=1.5)
    for measure in ("expected_match_risk", "true_match_rate", "unique_matches"):
        assert risks.get(measure, "restricted") == risks.get(measure, "keys")


@pytest.mark.parametrize(
    ("weight", "there"), [(0.0, ["unflagged", "all"]), (1.0, ["flagged", "all"])]
)
def test_groups_without_records_are_left_out(free, weight, there):
    risks = identification(release_of(free, [TRUTH], weights=np.full(5, weight)))
    assert list(dict.fromkeys(risks.summary["group"])) == there
    assert risks.get("targets", "restricted", "flagged") == (5.0 if weight else None)
    assert str(risks)


def test_against_the_unrestricted_fit_both_are_matched(free, kept):
    release = ds.synthesise(kept, 6, seed=1)
    risks = identification(release, coordinates=0.2)
    assert set(risks.summary["fit"]) == {"keys", "unrestricted", "restricted"}
    before, after = (risks.get("expected_match_risk", f) for f in ("unrestricted", "restricted"))
    assert before is not None
    assert after is not None
    assert risks.records.index.equals(release.problem.table.index)
    other = identification(release, coordinates=0.2, against=free)
    pd.testing.assert_frame_equal(risks.records, other.records)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keys": ["nowhere"]}, "no column 'nowhere'"),
        ({"keys": ["value"]}, "synthetic in every copy"),
        ({"keys": ["u"]}, "is a coordinate"),
        ({"keys": ["kind", "kind"]}, "named twice"),
        ({"keys": "kind"}, "list of columns"),
        ({"relative": 0.1, "absolute": 1.0}, "not both"),
        ({"relative": -0.1}, "relative tolerance"),
        ({"relative": np.inf}, "relative tolerance"),
        ({"absolute": -1.0}, "absolute tolerance"),
        ({"absolute": np.nan}, "absolute tolerance"),
        ({"coordinates": "vague"}, "grid size"),
        ({"coordinates": 0.0}, "grid size"),
        ({"coordinates": np.nan}, "grid size"),
        ({"coordinates": True}, "grid size"),
        ({"coordinates": 1e-320}, "too fine"),
    ],
)
def test_impossible_arguments_are_refused(free, arguments, message):
    with pytest.raises(InputError, match=message):
        identification(release_of(free, [TRUTH]), **arguments)


def test_a_key_that_can_not_be_compared_is_refused(free):
    release = release_of(free, [TRUTH], tags=[[1], [2], [3], [4], [5]])
    with pytest.raises(InputError, match="can't be compared"):
        identification(release, keys=["tags"])


def test_small_areas_join_the_nearest_until_each_has_enough():
    sites = np.array([[0.0, 0.0], [0.2, 0.0], [1.0, 0.0], [5.0, 0.0], [5.1, 0.0], [5.2, 0.0]])
    area = merged(np.array([0, 0, 1, 2, 2, 2]), sites, 2)
    np.testing.assert_array_equal(area, [0, 0, 0, 2, 2, 2])
    np.testing.assert_array_equal(np.unique(merged(area, sites, 4)).size, 1)
    assert np.unique(merged(area, sites, 99)).size == 1


@pytest.mark.parametrize("records", [[], [0, 0], [-1], [60], [0.5], [[1, 2]], ["a"]])
def test_positions_are_distinct_whole_numbers_inside_the_table(small, records):
    with pytest.raises(InputError, match="distinct positions"):
        record_positions(small, records)
