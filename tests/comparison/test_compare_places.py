"""The table of methods that change places, and methods at equal risk."""

from __future__ import annotations

import numpy as np
import pytest

from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.analysis.places.utility import apart
from dsstan.comparison.places.compare import at_equal_risk, compare_places
from dsstan.comparison.places.fixed import aggregate, voronoi
from dsstan.comparison.places.radial import displace
from dsstan.comparison.places.result import ProtectedPlaces
from dsstan.core.errors import InputError
from dsstan.table.mask.mask import Mask

CENTRES = np.stack(np.meshgrid(np.arange(8), np.arange(8)), axis=-1).reshape(-1, 2) + 0.5
MASK = Mask(CENTRES, 1.0, np.ones(64))


def table(n=80):
    """Places with a smooth value."""
    rng = np.random.default_rng(1)
    places = 8 * rng.random((n, 2))
    y = np.sin(places[:, 0]) + 0.1 * rng.normal(size=n)
    return MarkedPlaces(places, y, np.ones((n, 1)), terms=("Intercept",))


def test_the_table_holds_what_each_method_s_own_results_say():
    data = table()
    methods = [displace(data, MASK, 2.0), voronoi(data, MASK), aggregate(data, MASK, 2)]
    found = compare_places(data, MASK, methods, floor=0.2)
    assert found.table.index.tolist() == ["displacement", "Voronoi", "aggregation"]
    first = found.table.loc["displacement"]
    assert first["finding mean"] == methods[0].mean_finding
    assert first["found"] == np.mean(methods[0].finding > 0.2)
    assert first["presence max"] == methods[0].presence.max()
    curve = found.utilities["displacement"].curves.query("curve == 'K'")
    assert first["K"] == apart(curve["original"].to_numpy(), curve["copies"].to_numpy())
    assert first["bias"] == found.utilities["displacement"].regression["bias_in_se"].abs().max()
    assert "Voronoi: The intruder computes the place" in str(found)
    assert "found: above a chance of 0.2" in repr(found)


def test_displacement_loses_the_variogram_as_it_grows():
    data = table()
    lost = [
        compare_places(data, MASK, [displace(data, MASK, r)]).table["variogram"].iloc[0]
        for r in (0.05, 3.0)
    ]
    assert lost[0] < lost[1]


def test_a_method_twice_and_a_floor_that_is_no_chance_are_refused():
    data = table()
    one = displace(data, MASK, 1.0)
    with pytest.raises(InputError, match="each once"):
        compare_places(data, MASK, [one, one])
    with pytest.raises(InputError, match="floor"):
        compare_places(data, MASK, [one], floor=1.0)


def of_setting(setting):
    """A method whose risk is 1 / setting, at most 1."""
    return ProtectedPlaces("m", f"{setting:g}", (), np.array([1 / setting]), np.array([0.1]))


def test_the_setting_at_equal_risk_is_the_weakest_that_meets_the_aim():
    assert at_equal_risk(of_setting, 0.125, (1.0, 100.0)).mean_finding == pytest.approx(0.125, 0.01)
    assert at_equal_risk(of_setting, 0.13, (1, 100), whole=True).setting == "8"
    # At an end: everything meets the aim, or nothing does.
    assert at_equal_risk(of_setting, 0.9, (2, 50)).setting == "2"
    assert at_equal_risk(of_setting, 0.001, (2, 50)).setting == "50"
    with pytest.raises(InputError, match="ascending"):
        at_equal_risk(of_setting, 0.1, (5, 5))
