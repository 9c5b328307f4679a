"""The example data: where they are found, how they are verified, what they hold."""

from __future__ import annotations

import http.server
import importlib.util
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.spatial.distance import cdist

from conftest import _FOLDER, leave_out
from dsstan.core import resources as _resources
from dsstan.core.errors import DatasetError, DsstanError, InputError
from dsstan.table import datasets
from dsstan.table.datasets import load_baltimore, load_san_francisco, load_simulated

FILE = "sanfrancisco.home.sales.rda"
SEED = "729"  # the seed that data/simulated/README.md names


@pytest.fixture
def sf_file() -> Path:
    """The San Francisco file of this machine."""
    if _FOLDER is not None:
        for file in (Path(_FOLDER) / "san_francisco" / FILE, Path(_FOLDER) / FILE):
            if file.is_file():
                return file
    leave_out("the San Francisco file is missing; set DSSTAN_DATA to the folder that holds it")


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, no DSSTAN_DATA, and a server that does not answer; gives the cache."""
    monkeypatch.delenv("DSSTAN_DATA", raising=False)
    monkeypatch.setenv("DSSTAN_SF_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("platformdirs.user_cache_dir", lambda *_: str(tmp_path / "cache"))
    return tmp_path / "cache" / "data"


@pytest.fixture
def served(nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a server on this machine serves as the place to download from."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: object) -> None:
            super().__init__(*args, directory=str(folder))  # type: ignore[arg-type]

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("DSSTAN_SF_URL", f"http://127.0.0.1:{server.server_port}/")
    yield folder
    server.shutdown()
    server.server_close()
    thread.join()


# --- San Francisco ------------------------------------------------------------------------------


def test_one_bedroom_gives_the_214_homes_of_the_paper(san_francisco: pd.DataFrame) -> None:
    assert len(san_francisco) == 214
    assert (san_francisco["bedrooms"] == 1).all()
    assert san_francisco.index.equals(pd.RangeIndex(214))


def test_street_addresses_are_dropped(san_francisco: pd.DataFrame) -> None:
    assert not {"street", "line"} & {*san_francisco.columns}
    assert {"price", "squarefeet", "date", "neighborhood"} <= {*san_francisco.columns}


def test_homes_of_several_sizes_can_be_had_together(sf_file: Path) -> None:
    both = load_san_francisco(sf_file, bedrooms=[1, 2])
    parts = [load_san_francisco(sf_file, bedrooms=k) for k in (1, 2)]
    assert both["bedrooms"].value_counts().to_dict() == {k + 1: len(p) for k, p in enumerate(parts)}
    assert sorted(both["price"]) == sorted(pd.concat(parts)["price"])


def test_all_homes_can_be_had(sf_file: Path) -> None:
    everything = load_san_francisco(sf_file, bedrooms=None)
    assert len(everything) > len(load_san_francisco(sf_file, bedrooms=2)) > 214
    assert everything[["squarefeet", "latitude", "longitude"]].notna().all(axis=None)


def test_dates_of_sale_lie_in_the_stated_period(san_francisco: pd.DataFrame) -> None:
    assert san_francisco["date"].between("2008-02-13", "2009-07-14").all()
    assert (san_francisco["month"].dt.day == 1).all()


def test_the_spatial_outliers_have_the_stated_distances(san_francisco: pd.DataFrame) -> None:
    places = san_francisco[["longitude", "latitude"]].to_numpy()
    d = cdist(places, places)
    np.fill_diagonal(d, np.inf)
    largest = np.sort(d.min(axis=1))[::-1][:8]
    stated = [0.0207, 0.0207, 0.0162, 0.0148, 0.0148, 0.0141, 0.0130, 0.0074]
    np.testing.assert_allclose(largest, stated, atol=5e-5)  # stated to four decimals


@pytest.mark.parametrize("as_folder", [False, True])
def test_a_path_comes_first(nowhere: Path, sf_file: Path, as_folder: bool) -> None:
    path = sf_file.parent if as_folder else sf_file
    assert len(load_san_francisco(path)) == 214


@pytest.mark.parametrize("subfolder", ["", "san_francisco"])
def test_the_folder_of_the_environment_comes_next(
    nowhere: Path, sf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subfolder: str
) -> None:
    (tmp_path / "mine" / subfolder).mkdir(parents=True)
    (tmp_path / "mine" / subfolder / FILE).write_bytes(sf_file.read_bytes())
    monkeypatch.setenv("DSSTAN_DATA", str(tmp_path / "mine"))
    assert len(load_san_francisco()) == 214


def test_the_cache_comes_before_a_download(nowhere: Path, sf_file: Path) -> None:
    nowhere.mkdir(parents=True)
    (nowhere / FILE).write_bytes(sf_file.read_bytes())
    assert len(load_san_francisco()) == 214


def test_a_download_is_kept_in_the_cache(
    served: Path, nowhere: Path, sf_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (served / FILE).write_bytes(sf_file.read_bytes())
    assert len(load_san_francisco()) == 214
    monkeypatch.setenv("DSSTAN_SF_URL", "http://127.0.0.1:9")
    assert (nowhere / FILE).is_file()
    assert len(load_san_francisco()) == 214


def test_a_folder_of_the_environment_without_the_file_is_passed_over(
    served: Path, sf_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (served / FILE).write_bytes(sf_file.read_bytes())
    monkeypatch.setenv("DSSTAN_DATA", str(tmp_path))
    assert len(load_san_francisco()) == 214


def test_a_download_with_another_checksum_is_refused_and_not_kept(
    served: Path, nowhere: Path
) -> None:
    (served / FILE).write_bytes(b"something else")
    with pytest.raises(DatasetError, match="another checksum"):
        load_san_francisco()
    assert not (nowhere / FILE).exists()


def test_a_server_without_the_file_is_named(served: Path) -> None:
    with pytest.raises(DatasetError, match=r"the download from http://127\.0\.0\.1:\d+ failed"):
        load_san_francisco()


def test_without_network_the_four_ways_are_named(nowhere: Path) -> None:
    with pytest.raises(DatasetError) as caught:
        load_san_francisco()
    for way in ("its path", "DSSTAN_DATA", "cache", "network"):
        assert way in str(caught.value)


def test_a_file_with_another_checksum_is_refused(
    nowhere: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / FILE).write_bytes(b"something else")
    with pytest.raises(DatasetError, match="at the path given is not the one meant"):
        load_san_francisco(tmp_path / FILE)
    monkeypatch.setenv("DSSTAN_DATA", str(tmp_path))
    with pytest.raises(DatasetError, match="named by DSSTAN_DATA is not the one meant"):
        load_san_francisco()


def test_a_path_that_is_not_there_is_an_error_at_once(nowhere: Path, tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.rda"):
        with pytest.raises(DatasetError, match=r"no file .* at the path given"):
            load_san_francisco(path)


# --- simulated incomes --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nearest() -> np.ndarray:
    """Nearest-neighbour distances of the simulated records."""
    places = load_simulated()[["s1", "s2"]].to_numpy()
    d = cdist(places, places)
    np.fill_diagonal(d, np.inf)
    return d.min(axis=1)


def test_the_last_simulated_record_is_the_outlier_of_the_paper(nearest: np.ndarray) -> None:
    last = load_simulated().iloc[-1]
    assert (last["s1"], last["s2"]) == (0.51, 0.01)
    assert np.log(last["income"]) == pytest.approx(7.08, abs=1e-6)
    assert nearest[-1] > 0.26


def test_the_papers_distance_flags_the_outlier_and_two_more(nearest: np.ndarray) -> None:
    assert np.sum(nearest >= 0.13) == 3
    assert not np.any(np.abs(nearest - 0.13) < 0.01)


def test_simulated_incomes_are_positive_and_log_incomes_have_six_exact_decimals() -> None:
    income = load_simulated()["income"]
    written = 5e-5  # half a unit of the last decimal of the file
    assert income.min() > 0
    assert np.log1p(written / income.min()) < 1e-6


def test_the_script_makes_the_simulated_file_again(tmp_path: Path) -> None:
    script = _resources.data_folder() / "simulated" / "make_simulated.py"
    out = tmp_path / "again.csv"
    done = subprocess.run(
        [sys.executable, str(script), "--out", str(out), "--first-seed", SEED],
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"seed {SEED}," in done.stdout
    assert "NOT MET" not in done.stdout
    again, kept = pd.read_csv(out), load_simulated()
    pd.testing.assert_frame_equal(again[["s1", "s2"]], kept[["s1", "s2"]], check_exact=True)
    # Another BLAS may round the draw otherwise in its last digits.
    np.testing.assert_allclose(np.log(again["income"]), np.log(kept["income"]), atol=1e-6)


def test_missing_simulated_data_say_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(datasets, "data_folder", lambda: tmp_path)
    with pytest.raises(DatasetError, match=r"make_simulated\.py"):
        load_simulated()


# --- Baltimore ----------------------------------------------------------------------------------


def test_baltimore_has_211_sales_at_distinct_places() -> None:
    if importlib.util.find_spec("libpysal") is None:
        leave_out("libpysal is missing; pip install libpysal")
    table = load_baltimore()
    assert len(table) == 211
    assert not table.duplicated(["x", "y"]).any()
    assert table["price"].median() == 40_000


def test_baltimore_coordinates_read_as_thousands_of_feet_fall_in_baltimore() -> None:
    from pyproj import Transformer

    if importlib.util.find_spec("libpysal") is None:
        leave_out("libpysal is missing; pip install libpysal")
    table = load_baltimore()
    city = table[table["county"] == 0]
    to_degrees = Transformer.from_crs("EPSG:26785", "EPSG:4326", always_xy=True)
    lon, lat = to_degrees.transform(city["x"] * 1000, city["y"] * 1000)
    # The limits of the city of Baltimore, to a hundredth of a degree.
    assert lon.min() > -76.72
    assert lon.max() < -76.52
    assert lat.min() > 39.19
    assert lat.max() < 39.38


def test_without_libpysal_the_install_command_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda *_: None)
    with pytest.raises(InputError, match=r"pip install \"dsstan\[examples\]\""):
        load_baltimore()


# --- where the package's own files are ----------------------------------------------------------


def test_an_installed_package_uses_the_folder_inside_itself(tmp_path: Path) -> None:
    for name in ("dsstan/_data", "data"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "pyproject.toml").touch()
    assert _resources._folder("data", tmp_path / "dsstan") == tmp_path / "dsstan" / "_data"


def test_a_checkout_uses_its_top_level_folder(tmp_path: Path) -> None:
    (tmp_path / "stan").mkdir()
    (tmp_path / "pyproject.toml").touch()
    assert _resources._folder("stan", tmp_path / "dsstan") == tmp_path / "stan"


def test_a_folder_beside_an_installed_package_is_not_taken_for_its_own(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(DsstanError, match="'_data' inside the installed package"):
        _resources._folder("data", tmp_path / "dsstan")
