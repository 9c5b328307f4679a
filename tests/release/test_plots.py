"""Pictures: the right numbers in the layers, and PNG files only their owner can read."""

from __future__ import annotations

import stat
import struct
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import plotnine as p9
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex, to_rgb

import dsstan as ds
from dsstan.analysis.utility import Utility, utility
from dsstan.copies.result import Synthesis
from dsstan.core.errors import InputError
from dsstan.release.pictures.maps import map_ticks
from dsstan.release.pictures.plots import (
    plot_copies,
    plot_intervals,
    plot_risk,
    plot_surface,
    plot_surfaces,
    save,
)
from dsstan.risk.disclosure import Disclosure, disclosure
from dsstan.table.problem import Problem

RED = "#d7191c"
PIXEL = 1.0
"""A size in inches is no whole number of pixels."""
SHADES = 2 / 255
"""The palette is a table of some hundred colours, of which 0 need not be one."""
FAR = 59
"""Position of the small table's far record, its last."""


@pytest.fixture(scope="module")
def release(small: Problem) -> Synthesis:
    """Twenty restricted copies from two tiny fits, the isolated records flagged."""
    settings: dict[str, Any] = {
        "chains": 2,
        "warmup": 200,
        "samples": 200,
        "engine": "embedded",
        "progress": False,
    }
    free = ds.fit(small, seed=1, **settings)
    weights = ds.flag_isolated(free, distance=0.15)
    kept = ds.fit(small, weights=weights, start=free, seed=2, **settings)
    return ds.synthesise(
        kept, 20, seed=3, accept_failed=True, accept_few_draws=True, progress=False
    )


@pytest.fixture(scope="module")
def risks(release: Synthesis) -> Disclosure:
    """Its risks."""
    return disclosure(release)


@pytest.fixture(scope="module")
def kept(release: Synthesis) -> Utility:
    """Its utility."""
    return utility(release)


def grid(scale: float = 1.0) -> pd.DataFrame:
    """A surface over the small table's square, w = scale * x."""
    x, y = np.meshgrid(np.arange(-0.1, 1.75, 0.1), np.arange(-0.1, 1.05, 0.1))
    return pd.DataFrame({"x": x.ravel(), "y": y.ravel(), "w": scale * x.ravel()})


def layers(plot: Any, geom: type) -> list[Any]:
    """The layers of one geometry, in order."""
    return [layer for layer in plot.layers if type(layer.geom) is geom]


def rows(layer: Any) -> pd.DataFrame:
    """The data that a layer was given, or made from its arguments."""
    data: pd.DataFrame = layer._data
    return data


def fill(plot: Any) -> Any:
    """The colour scale."""
    return plot.scales.get_scales("fill")


def fill_limits(plot: Any) -> tuple[float, float]:
    """Ends of the colour scale."""
    low, high = fill(plot).limits
    return float(low), float(high)


def marks(plot: Any, colour: str) -> list[int]:
    """How many marks of a colour each drawn panel holds."""
    figure = plot.draw()
    counts = []
    for axes in figure.axes:
        drawn: list[Any] = [c for c in axes.collections if len(c.get_facecolor())]
        right = [c for c in drawn if to_hex(c.get_facecolor()[0]) == colour]
        counts.append(sum(len(c.get_offsets()) for c in right))
    pyplot.close(figure)
    return counts


def png_size(path: Path) -> tuple[int, int]:
    """Width and height in pixels, from the header of a PNG."""
    head = path.read_bytes()[:24]
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", head[16:24])
    return width, height


@pytest.mark.parametrize("name", ["surface", "surfaces", "copies", "intervals", "risk"])
def test_every_picture_is_a_ggplot_and_becomes_a_png_in_silence(
    name: str, release: Synthesis, risks: Disclosure, kept: Utility, tmp_path: Path
) -> None:
    problem, flagged = release.problem, release.fit.flagged
    plot = {
        "surface": lambda: plot_surface(grid(), problem, flagged=flagged, title="w"),
        "surfaces": lambda: plot_surfaces({"a": grid(), "b": grid(2)}, problem, flagged=flagged),
        "copies": lambda: plot_copies(release, FAR),
        "intervals": lambda: plot_intervals(kept),
        "risk": lambda: plot_risk(risks),
    }[name]()
    assert isinstance(plot, p9.ggplot)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = save(plot, tmp_path / f"{name}.png")
    inches = np.array(plot.theme.getp("figure_size"))
    np.testing.assert_allclose(png_size(path), 150 * inches, atol=PIXEL)


def test_a_surface_has_a_red_triangle_for_each_flagged_record_above_the_circles(
    release: Synthesis,
) -> None:
    problem, flagged = release.problem, release.fit.flagged
    plot: Any = plot_surface(grid(), problem, flagged=flagged)
    circles, triangles = layers(plot, p9.geom_point)
    assert 1 <= flagged.sum() == len(rows(triangles)) < len(flagged)
    np.testing.assert_array_equal(rows(triangles)[["x", "y"]], problem.sites[flagged])
    np.testing.assert_array_equal(rows(circles)[["x", "y"]], problem.sites[~flagged])
    assert marks(plot, RED) == [flagged.sum()]


@pytest.mark.parametrize("flagged", [None, np.zeros(60, bool), np.ones(60, bool)])
def test_all_records_are_drawn_when_none_or_every_one_is_flagged(
    flagged: Any, small: Problem
) -> None:
    plot: Any = plot_surface(grid(), small, flagged=flagged)
    (points,) = layers(plot, p9.geom_point)
    assert len(rows(points)) == small.n_records
    every = flagged is not None and bool(flagged.all())
    assert marks(plot, RED) == [small.n_records if every else 0]


def test_the_scale_of_w_is_symmetric_about_zero_and_another_spans_its_values() -> None:
    low, high = fill_limits(plot_surface(grid()))
    assert -low == high == pytest.approx(1.7)
    level = grid().rename(columns={"w": "level"})
    assert fill_limits(plot_surface(level, value="level")) == pytest.approx((-0.1, 1.7))


def test_zero_has_the_neutral_colour_whatever_the_limits() -> None:
    for limits in (None, (-1.0, 3.0)):
        scale = fill(plot_surface(grid(), limits=limits))
        np.testing.assert_allclose(to_rgb(scale.map([0.0])[0]), [247 / 255] * 3, atol=SHADES)


def test_values_beyond_the_limits_take_the_colour_of_the_end() -> None:
    scale = fill(plot_surface(grid(), limits=(-1.0, 1.0)))
    assert fill_limits(plot_surface(grid(), limits=(-1.0, 1.0))) == (-1.0, 1.0)
    assert scale.map([9.0]) == scale.map([1.0])


def test_surfaces_share_one_colour_scale_that_holds_the_largest(small: Problem) -> None:
    plot: Any = plot_surfaces({"unrestricted": grid(3), "restricted": grid()}, small)
    assert fill_limits(plot) == pytest.approx((-5.1, 5.1))
    assert list(plot.data["panel"].cat.categories) == ["unrestricted", "restricted"]
    widest = plot.data.groupby("panel", observed=True)["w"].max()
    assert widest.tolist() == pytest.approx([5.1, 1.7])


def test_surfaces_of_different_cells_keep_their_own_cell_size() -> None:
    fine = grid()
    coarse = fine[np.isin(np.rint(10 * fine["x"]), np.arange(-1, 18, 2))]
    plot: Any = plot_surfaces({"fine": fine, "coarse": coarse})
    widths = plot.data.groupby("panel", observed=True)["width"].first()
    assert widths.tolist() == pytest.approx([0.1, 0.2])


def test_missing_values_leave_holes_and_a_single_column_is_drawn(tmp_path: Path) -> None:
    holed = grid()
    holed.loc[3:7, "w"] = np.nan
    plot: Any = plot_surface(holed)
    assert len(plot.data) == len(holed) - 5
    column = holed[holed["x"] == holed["x"].min()]
    png_size(save(plot_surface(column), tmp_path / "column.png"))


def test_axes_are_named_after_the_coordinates_and_a_degree_of_latitude_is_longer() -> None:
    table = pd.DataFrame(
        {"longitude": [0.0, 1.7, 0.5, 0.2], "latitude": [50.0, 51.0, 50.2, 50.7], "v": range(4)}
    )
    surface = grid()
    surface["y"] += 50
    for distance, names in {
        "degrees": ("longitude", "latitude"),
        "projected": ("easting (km)", "northing (km)"),
    }.items():
        problem = ds.prepare(table, "v ~ 1", coords=("longitude", "latitude"), distance=distance)
        plot: Any = plot_surface(surface, problem)
        assert (plot.labels.x, plot.labels.y) == names
        degrees = distance == "degrees"
        ratio = 1 / np.cos(np.deg2rad(50.45)) if degrees else 1.0
        assert plot.coordinates.ratio == pytest.approx(ratio)


def test_the_lines_stand_at_the_truth_and_the_means_of_the_copies(release: Synthesis) -> None:
    plot: Any = plot_copies(release, FAR)
    before = release.comparison()
    assert before is not None
    truth = float(np.log(release.problem.table["value"].iloc[FAR]))
    free, kept = (float(np.mean(np.log(s.values[:, FAR]))) for s in (before, release))
    (lines,) = layers(plot, p9.geom_vline)
    drawn = {(row.fit, row.line): row.value for row in rows(lines).itertuples()}
    assert drawn == pytest.approx(
        {
            ("without protection", "truth"): truth,
            ("without protection", "mean without protection"): free,
            ("with protection", "truth"): truth,
            ("with protection", "mean without protection"): free,
            ("with protection", "mean with protection"): kept,
        }
    )
    colours = plot.scales.get_scales("color").map(
        ["truth", "mean without protection", "mean with protection"]
    )
    assert list(colours) == [RED, "#008837", "#0571b0"]


def test_the_histograms_hold_every_copy_on_the_modelled_scale(release: Synthesis) -> None:
    plot: Any = plot_copies(release, FAR)
    bars = layers(plot, p9.geom_histogram)
    assert [rows(layer)["fit"].iloc[0] for layer in bars] == [
        "without protection",
        "with protection",
    ]
    np.testing.assert_allclose(rows(bars[1])["value"], np.log(release.values[:, FAR]))
    assert plot.labels.x == "value (spaced as its log)"
    assert plot.labels.title == f"Copies of record {FAR} (row {FAR}, counted from 0)"
    scale = plot.scales.get_scales("x")
    ends = np.log([90_000.0, 2_000_000.0])
    assert scale.labels(scale.breaks(ends)) == ["100,000", "1,000,000"]
    figure = plot.draw()
    first, second = (axes.get_xlim() for axes in figure.axes)
    pyplot.close(figure)
    assert first == second


def test_unrestricted_copies_alone_have_one_panel_and_equal_copies_are_drawn(
    release: Synthesis, tmp_path: Path
) -> None:
    before = release.comparison()
    assert before is not None
    same = Synthesis(before.fit, np.full((3, 60), 7.0), "w", before.draw_index[:3], 1, 0.0)
    plot: Any = plot_copies(same, 0)
    assert len(layers(plot, p9.geom_histogram)) == 1
    png_size(save(plot, tmp_path / "one.png"))


def test_intervals_are_those_of_the_table_with_the_original_on_top(kept: Utility) -> None:
    plot: Any = plot_intervals(kept)
    columns = ["estimate", "low", "high"]
    pd.testing.assert_frame_equal(plot.data[columns], kept.table[columns])
    assert plot.data["source"].cat.categories[-1] == "original"
    assert list(plot.data["term"].cat.categories) == ["Intercept", "x"]
    (line,) = layers(plot, p9.geom_vline)
    assert rows(line)["estimate"].tolist() == [
        kept.get("original", "Intercept").estimate,
        kept.get("original", "x").estimate,
    ]
    assert plot.labels.x == "estimate and 95% interval"


def test_the_risk_picture_has_the_shares_of_every_record_and_the_diagonal(
    risks: Disclosure,
) -> None:
    plot: Any = plot_risk(risks)
    circles, triangles = layers(plot, p9.geom_point)
    records = risks.records
    drawn = pd.concat([rows(circles), rows(triangles)]).sort_index()
    for fit in ("unrestricted", "restricted"):
        np.testing.assert_array_equal(drawn[fit], records[f"within_relative_{fit}"])
    assert len(rows(triangles)) == records["flagged"].sum() >= 1
    (diagonal,) = layers(plot, p9.geom_abline)
    assert rows(diagonal)[["slope", "intercept"]].to_numpy().tolist() == [[1, 0]]
    assert marks(plot, RED) == [len(rows(triangles))]


def test_a_layer_of_the_users_own_can_be_added(small: Problem, tmp_path: Path) -> None:
    place = pd.DataFrame({"x": [0.5], "y": [0.5], "name": ["here"]})
    named: Any = p9.aes
    plot: Any = plot_surface(grid(), small) + p9.geom_label(named(label="name"), data=place)
    plot += p9.labs(title="mine")
    assert plot.labels.title == "mine"
    png_size(save(plot, tmp_path / "mine.png"))


def test_a_file_is_private_replaced_at_once_and_of_the_size_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "w.png"
    path.write_bytes(b"old")
    path.chmod(0o644)
    assert save(plot_surface(grid()), path, width=4, height=3, dpi=50) == path
    assert png_size(path) == (200, 150)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    assert pyplot.get_fignums() == []


SCATTERED = pd.DataFrame(np.random.default_rng(1).random((20, 3)).round(4), columns=list("xyw"))


@pytest.mark.parametrize(
    ("surface", "changes", "message"),
    [
        ([1, 2], {}, "must be a DataFrame"),
        (grid().drop(columns="y"), {}, "no column 'y'"),
        (grid(), {"value": "mu"}, "no column 'mu'"),
        (grid(), {"value": "x"}, "another column"),
        (grid().assign(w="high"), {}, "must hold numbers"),
        (grid().assign(w=np.nan), {}, "no cell with a value"),
        (grid().assign(x=np.inf), {}, "missing or infinite"),
        (pd.concat([grid(), grid()]), {}, "two values for one cell"),
        (SCATTERED, {}, "no regular grid"),
        (grid(), {"limits": (1, 0)}, "limits must be two finite numbers"),
        (grid(), {"limits": 3}, "limits must be two finite numbers"),
        (grid(), {"flagged": np.zeros(60, bool)}, "flagged needs problem"),
    ],
)
def test_a_bad_surface_is_refused(surface: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        plot_surface(surface, **changes)


@pytest.mark.parametrize("flagged", [[True], [3, 7], np.zeros(60)])
def test_flags_that_are_not_one_true_or_false_a_record_are_refused(
    flagged: Any, small: Problem
) -> None:
    with pytest.raises(InputError, match="one true or false a record"):
        plot_surface(grid(), small, flagged=flagged)


@pytest.mark.parametrize("surfaces", [{}, grid(), [grid()]])
def test_surfaces_without_names_are_refused(surfaces: Any) -> None:
    with pytest.raises(InputError, match="mapping of at least one name"):
        plot_surfaces(surfaces)


@pytest.mark.parametrize("record", [-1, 60, 1.5, True, "here"])
def test_a_record_that_does_not_exist_is_refused(record: Any, release: Synthesis) -> None:
    with pytest.raises(InputError, match="whole number from 0 to 59"):
        plot_copies(release, record)


def test_risks_with_nothing_to_compare_are_refused(release: Synthesis, risks: Disclosure) -> None:
    before = release.comparison()
    assert before is not None
    with pytest.raises(InputError, match="no restricted shares"):
        plot_risk(disclosure(before))
    with pytest.raises(InputError, match="absolute="):
        plot_risk(risks, measure="absolute")
    with pytest.raises(InputError, match="measure must be"):
        plot_risk(risks, measure="both")


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("w.pdf", {}, "end in .png"),
        ("none/w.png", {}, "is no folder"),
        ("w.png", {"width": 4}, "width and height, or neither"),
        ("w.png", {"width": 4, "height": 400}, "in inches"),
        ("w.png", {"dpi": 0}, "dpi must be above 0"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_and_leaves_nothing(
    name: str, size: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        save(plot_surface(grid()), tmp_path / name, **size)
    assert not list(tmp_path.iterdir())


def test_importing_the_package_does_not_import_plotnine() -> None:
    code = "import sys, dsstan; sys.exit('plotnine' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("ends", [(0.0, 1.0), (0.01, 0.99), (-122.52, -122.38), (540.0, 556.0)])
@pytest.mark.parametrize("count", [3, 4, 5])
def test_a_map_has_two_ticks_or_more_inside_and_their_labels_differ(ends, count):
    ticks = map_ticks(ends, count)
    assert 2 <= len(ticks) <= count + 3
    assert all(ends[0] <= tick <= ends[1] for tick in ticks)
