"""Pictures of synthetic places show what the tables hold."""

from __future__ import annotations

import numpy as np
import pytest

from dsstan.analysis.places.marked import MarkedPlaces
from dsstan.analysis.places.utility import place_utility
from dsstan.core.errors import InputError
from dsstan.release.pictures.place_plots import plot_k, plot_places
from dsstan.release.pictures.save import save
from dsstan.table.mask.mask import Mask

CENTRES = np.stack(np.meshgrid(np.arange(6), np.arange(6)), axis=-1).reshape(-1, 2) + 0.5
MASK = Mask(CENTRES, 1.0, np.ones(36))


def table(seed):
    """Places with values."""
    rng = np.random.default_rng(seed)
    return MarkedPlaces(6 * rng.random((50, 2)), rng.normal(size=50))


def test_the_map_has_a_panel_for_the_original_and_each_copy_and_saves(tmp_path):
    tables = [table(k) for k in range(5)]
    plot = plot_places(tables[0], tables[1:], MASK)
    assert list(plot.data["panel"].cat.categories) == ["original", "copy 1", "copy 2", "copy 3"]
    assert len(plot.data) == 200
    assert save(plot, tmp_path / "map.png").stat().st_size > 1000
    bare = [MarkedPlaces(t.places) for t in tables]
    assert "value" not in plot_places(bare[0], bare[1:2], MASK, names=["masked"]).data
    with pytest.raises(InputError, match="one name"):
        plot_places(tables[0], [], MASK)


def test_the_picture_of_k_centres_each_curve_at_no_interaction(tmp_path):
    found = place_utility(table(1), [table(2), table(3)], MASK, steps=8)
    plot = plot_k(found, unit="km")
    k = found.curves[found.curves["curve"] == "K"]
    own = plot.data[plot.data["curve"] == "original"]["l"].to_numpy()
    expected = np.sqrt(k["original"].to_numpy() / np.pi) - k["distance"].to_numpy()
    np.testing.assert_allclose(own, expected)
    assert plot.labels.x == "distance r (km)"
    save(plot, tmp_path / "k.png")
