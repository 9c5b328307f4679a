"""Presence and finding against a Dirichlet-multinomial and negative binomial of scipy.

``places_by_definition`` is an intruder that was written without the package: it works out anew, for
every table it thinks of, which counts inform the release and how likely the copies are.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from places_by_definition import (
    chances_of,
    counts_of,
    informing_of,
    log_cells,
    log_numbers,
    present,
)
from scipy.stats import dirichlet_multinomial

from dsstan.core.errors import InputError
from dsstan.models.intensity.cell_law import IndependentCells
from dsstan.risk.places.assessment import assess_counts
from dsstan.risk.places.finding import finding
from dsstan.risk.places.known import KnownPlaces
from dsstan.risk.places.presence import presence
from dsstan.risk.places.result import MET, MISSED, NOT_JUDGED, EarlierPlaces

EXACT = 1e-8
"""Both sides are closed forms in double precision."""


def known_of(table, prior, held_back=1):
    group, cell = np.array(table).T
    counts = counts_of(table, prior.shape)
    return KnownPlaces(IndependentCells(prior), counts, group, cell, held_back)


def copies_of(known, prior, copies, rng, number="kept"):
    out = np.zeros((copies, *prior.shape))
    for copy in out:
        for k, total in enumerate(known.totals):
            n = total if number == "kept" else rng.poisson(rng.gamma(total)) if total else 0
            copy[k] = rng.multinomial(int(n), rng.dirichlet(known.informing[k] + prior[k]))
    return out


LONELY = [(0, 0)] * 6 + [(0, 1)] * 4 + [(0, 5)]
PAIR = [(0, 0)] * 8 + [(0, 1)] * 4 + [(0, 4)] * 2
TOWER = [(0, 2)] * 30 + [(0, 0)] * 3 + [(0, 1)] * 2 + [(0, 4)]
HOLE = [(0, 0)] * 5 + [(0, 1)] * 5 + [(0, 3)] * 2 + [(0, 5)] * 3
EMPTY = [(0, 0)] * 6 + [(0, 3)] * 3 + [(1, 5)] + [(1, 1)] * 2
PLANTED = {
    "one lonely record": (LONELY, np.full((1, 6), 0.3)),
    "a pair": (PAIR, np.full((1, 6), 0.3)),
    "a tower": (TOWER, np.full((1, 6), 0.3)),
    "a hole in the mask": (HOLE, np.array([[0.4, 0.3, 0.01, 0.3, 0.2, 0.4]])),
    "an empty group": (EMPTY, np.full((3, 6), 0.3)),
}


def check_against_the_definition(table, prior, held_back, number, rng, copies):
    """What is printed is what the outside intruder finds: nobody beats it, nor is more claimed."""
    known = known_of(table, prior, held_back)
    released = copies_of(known, prior, copies, rng, number)
    factors, found = presence(known, released, number), finding(known, released)
    for i, (_, cell) in enumerate(table):
        before, after = chances_of(released, table, prior, held_back, i)
        kept = after[cell] / before[cell]
        true = kept if number == "kept" else present(released, table, prior, held_back, i)
        assert factors[i] == pytest.approx(true, rel=EXACT)
        assert found.cell_before[i] == pytest.approx(before[cell], rel=EXACT)
        assert found.cell[i] == pytest.approx(after[cell], rel=EXACT)
        assert found.as_likely[i] == np.sum(after >= after[cell] * (1 - EXACT))


@pytest.mark.parametrize("name", PLANTED)
@pytest.mark.parametrize("number", ["kept", "drawn"])
def test_no_intruder_beats_the_printed_numbers_on_a_planted_table(name, number):
    rng = np.random.default_rng(20)
    for copies in (3, 20):
        check_against_the_definition(*PLANTED[name], 1, number, rng, copies)


@pytest.mark.parametrize("held_back", [0, 1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_both_intruders_are_those_of_the_definition(held_back, groups):
    rng = np.random.default_rng(7)
    for trial in range(8):
        prior = rng.uniform(0.1, 0.9, (groups, 5))
        cells = rng.integers(5, size=14) * rng.integers(2, size=14)
        table = [(int(rng.integers(groups)), int(cell)) for cell in cells]
        number = ("kept", "drawn")[trial % 2]
        check_against_the_definition(table, prior, held_back, number, rng, copies=2)


def test_a_lone_record_is_given_away_unless_it_is_held_back():
    table, prior = PLANTED["one lonely record"]
    released = np.zeros((20, 1, 6))
    released[:, 0] = [6, 4, 0, 0, 0, 1]
    free, held = (finding(known_of(table, prior, h), released) for h in (0, 1))
    assert free.cell[-1] > 0.95
    # by symmetry: of four cells where a person would leave no trace, three have the same prior
    assert held.as_likely[-1] >= 4
    assert held.cell[-1] <= 1 / 4


def _all_copies(n, C):
    return [np.array(r, dtype=float) for r in product(range(n + 1), repeat=C) if sum(r) == n]


@pytest.mark.parametrize("held_back", [0, 1, 2])
def test_bayes_factors_average_to_one_over_every_copy_without_the_person(held_back):
    """Sums over every possible copy of N = 3 records on 3 cells: nothing is simulated."""
    prior = np.array([[0.5, 0.9, 0.2]])
    for table in ([(0, 0), (0, 0), (0, 1)], [(0, 0), (0, 1), (0, 2)], [(0, 2)] * 3):
        known = known_of(table, prior, held_back)
        for at in range(3):
            without = [*table[:at], *table[at + 1 :]]
            total = mass = 0.0
            for n in range(41):  # a negative binomial of 2: beyond 40 lie less than 1e-10
                numbers = np.zeros((1, 1, 3))
                numbers[0, 0, 0] = n
                seen = np.exp(log_numbers(numbers, without, 1))
                factor = np.exp(log_numbers(numbers, table, 1)) / seen
                if n < 5:  # the cells of larger copies sum to 1 given their number
                    copies = [copy[None, None] for copy in _all_copies(n, 3)]
                    chance = [np.exp(log_cells(r, without, prior, held_back)) for r in copies]
                    factors = [presence(known, r, "drawn")[at] for r in copies]
                    assert sum(chance) == pytest.approx(1.0, abs=EXACT)
                    factor = np.dot(chance, factors)
                total += seen * factor
                mass += seen
            assert mass == pytest.approx(1.0, abs=EXACT)
            assert total == pytest.approx(1.0, abs=EXACT)


@pytest.mark.parametrize("held_back", [0, 1, 2])
def test_chances_of_the_right_cell_are_calibrated_over_every_place_and_copy(held_back):
    """Who knows two of three records draws the third by the prior. Among all places and copies, the
    mean chance that is printed of the right cell is the rate at which a guess that is drawn from
    what the intruder believes is right; both are sums over every case."""
    prior = np.array([[0.5, 0.9, 0.2]])
    others = [(0, 0), (0, 1)]
    before = (prior[0] + [1.0, 1.0, 0.0]) / (prior.sum() + 2.0)
    printed = hits = 0.0
    for copy in _all_copies(3, 3):
        released = copy[None, None]
        joint, claimed = np.zeros(3), np.zeros(3)
        for cell in range(3):
            table = [*others, (0, cell)]
            weight = informing_of(table, prior, held_back)[0] + prior[0]
            joint[cell] = before[cell] * dirichlet_multinomial.pmf(copy, weight, 3)
            claimed[cell] = finding(known_of(table, prior, held_back), released).cell[2]
        # the intruder does not know the cell: each claim is of the same posterior
        assert claimed.sum() == pytest.approx(1.0, abs=EXACT)
        printed += joint @ claimed
        hits += joint @ joint / joint.sum()
    assert printed == pytest.approx(hits, abs=EXACT)


def test_a_second_release_from_the_same_chances_is_counted_as_more_copies():
    table, prior = PLANTED["a pair"]
    known = known_of(table, prior)
    rng = np.random.default_rng(2)
    first, second = (copies_of(known, prior, 2, rng) for _ in range(2))
    kinds = {"places": "population", "number": "kept"}
    former = assess_counts(known, first, **kinds)
    both = assess_counts(known, second, **kinds, earlier=[former])
    at_once = assess_counts(known, np.concatenate([first, second]), **kinds)
    np.testing.assert_allclose(both.found.cell, at_once.found.cell, rtol=EXACT)
    np.testing.assert_allclose(both.bayes_factor, at_once.bayes_factor, rtol=EXACT)
    # from what was kept of it alone: never surer than the release by itself is without it
    kept = assess_counts(known, second, **kinds, earlier=[former.for_later])
    alone = assess_counts(known, second, **kinds)
    assert (kept.found.cell >= alone.found.cell * (1 - EXACT)).all()
    assert (kept.bayes_factor >= alone.bayes_factor * (1 - EXACT)).all()
    risen = former.log_odds > 0
    assert risen.any()
    assert (kept.found.cell > alone.found.cell)[risen].all()


def test_the_table_of_an_earlier_release_says_what_its_assessment_says():
    table, prior = PLANTED["a tower"]
    known = known_of(table, prior)
    released = copies_of(known, prior, 2, np.random.default_rng(4), "drawn")
    found = assess_counts(known, released, places="population", number="drawn")
    read = EarlierPlaces.read(found.records)
    np.testing.assert_allclose(read.log_presence, found.for_later.log_presence, rtol=EXACT)
    np.testing.assert_allclose(read.log_odds, found.for_later.log_odds, rtol=EXACT)
    with pytest.raises(InputError, match="missing: cell_before"):
        EarlierPlaces.read(found.records.drop(columns="cell_before"))
    with pytest.raises(InputError, match="no factor or chance"):
        EarlierPlaces.read(found.records.assign(cell=-0.5))


def test_the_verdict_is_of_the_limits_that_were_asked():
    table, prior = PLANTED["an empty group"]
    known = known_of(table, prior)
    released = copies_of(known, prior, 2, np.random.default_rng(1))
    kinds = {"places": "population", "number": "kept"}
    none = assess_counts(known, released, **kinds)
    assert none.verdict == NOT_JUDGED
    lax = assess_counts(known, released, **kinds, presence=1e6, finding=0.999)
    assert lax.verdict == MET
    strict = assess_counts(known, released, **kinds, presence=1e6, finding=0.01)
    assert strict.verdict == MISSED
    assert f"of {len(table)} records, for {len(table)} of them without" in strict.why
    moved = assess_counts(known, released, places="moved", number="kept", presence=1e6)
    assert moved.verdict == NOT_JUDGED
    assert "all go out" in moved.why
    assert "Bayes factor" in str(strict)
    assert strict.summary()["bayes_factor"]["lonely"]["records"] == int(known.lonely.sum())


def test_a_group_of_one_person_is_never_in_a_copy_without_them():
    table, prior = [(0, 0)] * 4 + [(1, 3)], np.full((2, 5), 0.3)
    known = known_of(table, prior)
    released = np.zeros((1, 2, 5))
    released[0, 0, 0], released[0, 1, 2] = 4, 1
    found = assess_counts(known, released, places="population", number="drawn", presence=3)
    assert np.isinf(found.bayes_factor[-1])
    assert np.isfinite(found.bayes_factor[:-1]).all()
    assert found.verdict == MISSED
    assert found.summary()["bayes_factor"]["lonely"]["largest"] is None


def test_addresses_share_the_chance_of_their_cell():
    table, prior = PLANTED["one lonely record"]
    known = known_of(table, prior)
    released = copies_of(known, prior, 2, np.random.default_rng(1))
    addresses = np.array([10.0, 4.0, 1.0, 2.0, 5.0, 3.0])
    found = finding(known, released, addresses)
    for i, (_, cell) in enumerate(table):
        _, after = chances_of(released, table, prior, 1, i)
        each = after / addresses
        assert found.address[i] == pytest.approx(each[cell], rel=EXACT)
        assert found.addresses[i] == addresses[each >= each[cell] * (1 - EXACT)].sum()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"presence": 1.0}, "above 1"),
        ({"finding": 1.0}, "between 0 and 1"),
        ({"places": "kept"}, "must be"),
    ],
)
def test_limits_that_are_none_are_refused(change, message):
    table, prior = PLANTED["a pair"]
    known = known_of(table, prior)
    with pytest.raises(InputError, match=message):
        assess_counts(
            known, np.zeros((1, 1, 6)), **{"places": "population", "number": "kept", **change}
        )


def test_counts_of_another_mask_are_refused():
    table, prior = PLANTED["a pair"]
    known = known_of(table, prior)
    with pytest.raises(InputError, match="1 groups, 6 cells"):
        finding(known, np.zeros((1, 1, 7)))
    with pytest.raises(InputError, match="everyone must be the counts"):
        KnownPlaces(known.law, known.everyone + 1, *(np.array(table).T))
