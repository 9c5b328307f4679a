"""The bounds of an attack on a release against the exact intruder."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from bound_cases import PROTECTIONS, cases, release
from scipy.stats import binom

from dsstan.risk.intruder.attacker import attack
from dsstan.risk.intruder.exact import exact_intruder

INSIDE = 0.95
FAR_BELOW = 0.05
EQUAL = 1e-3
"""Relative error of the two grids, where the copies say nothing and all three sds are one."""


def inside(found):
    """Whether each exact sd lies between its bounds."""
    low, high = found["low"] * (1 - EQUAL), found["high"] * (1 + EQUAL)
    return (found["exact"] >= low) & (found["exact"] <= high)


def test_the_exact_sd_lies_between_the_bounds_in_nineteen_of_twenty_cases():
    """Two releases by day; so few may miss by chance, so many hardly ever where 95% do not."""
    some = [("paper", np.inf, 0.01), ("none", 0.0, 2.0)]
    found = pd.concat([next(cases([0], [(nugget, (name, gamma))])) for name, gamma, nugget in some])
    assert len(found) >= 20
    assert inside(found).sum() >= binom.ppf(1e-5, len(found), INSIDE)
    assert (found["exact"] > (1 - FAR_BELOW) * found["low"]).all()


@pytest.mark.nightly("more than 200 record-cases of the exact intruder")
def test_it_does_so_at_every_nugget_under_every_protection():
    found = pd.concat(list(cases([6, 7])), ignore_index=True)
    assert len(found) > 200
    assert set(found["protection"]) == {name for name, _ in PROTECTIONS}
    assert inside(found).mean() >= INSIDE
    assert (found["exact"] > (1 - FAR_BELOW) * found["low"]).all()


def test_where_copies_say_nothing_both_bounds_are_what_the_others_leave():
    made = release(0.25, "cut", np.inf, 30, 5, 3)
    bounds = attack(made, progress=False)
    flagged = np.flatnonzero(made.fit.flagged)
    for variances in ("known", "fixed"):
        sd = bounds.sd(variances=variances)[flagged]
        np.testing.assert_allclose(sd, bounds.leave_one_out[flagged], rtol=1e-12)
    found = exact_intruder(made, records=flagged[:2], bounds=bounds, progress=False).records
    np.testing.assert_allclose(found["sd"], bounds.leave_one_out[found["position"]], rtol=EQUAL)
