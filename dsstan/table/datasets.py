"""The example data: San Francisco home sales, simulated incomes, Baltimore house sales.

Only the simulated data come with the package. The folders ``data/<name>`` of the repository
hold a README for each, with source, licence, columns and units.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import platformdirs

from dsstan.core.errors import DatasetError
from dsstan.core.optional import needed, place_of
from dsstan.core.resources import data_folder

_SF_FILE = "sanfrancisco.home.sales.rda"
_SF_SHA256 = "87aabf5a2a9225b72cf59f0469ace363185e1b80d649f9430795bb39c5475820"
_SF_URL = (
    "https://raw.githubusercontent.com/cran/nutshell/1c89b96c48cffe44f8e40415feda0d21e0edd268/data"
)
_SF_NEVER_NEEDED = ["line", "street"]
_SF_WHOLE = ["zip", "bedrooms", "squarefeet", "lotsize", "year"]
_SF_NEEDED = ["squarefeet", "latitude", "longitude"]

_BALTIMORE_COLUMNS = {
    "STATION": "station",
    "PRICE": "price",
    "NROOM": "rooms",
    "DWELL": "detached",
    "NBATH": "bathrooms",
    "PATIO": "patio",
    "FIREPL": "fireplace",
    "AC": "air_conditioning",
    "BMENT": "basement",
    "NSTOR": "storeys",
    "GAR": "garage",
    "AGE": "age",
    "CITCOU": "county",
    "LOTSZ": "lot_size",
    "SQFT": "squarefeet",
    "X": "x",
    "Y": "y",
}
# Thousands of dollars, hundreds of square feet.
_BALTIMORE_SCALE = {"price": 1000.0, "lot_size": 100.0, "squarefeet": 100.0}
_BALTIMORE_WHOLE = [
    "station",
    "rooms",
    "detached",
    "patio",
    "fireplace",
    "air_conditioning",
    "basement",
    "garage",
    "age",
    "county",
]


def load_san_francisco(
    path: str | os.PathLike[str] | None = None, *, bedrooms: int | Sequence[int] | None = 1
) -> pd.DataFrame:
    """Home sales in San Francisco, 13 February 2008 to 14 July 2009.

    The data of section 5 of Quick, Holan and Wikle (2018), collected by Joseph Adler for "R
    in a Nutshell" and published in the R package nutshell under CC BY 3.0 US. The file is
    looked for, in this order, at ``path``; in the folder named by the environment variable
    ``DSSTAN_DATA`` or its subfolder ``san_francisco``; in the user's cache; and is else
    downloaded once into the cache. Its checksum is verified wherever it comes from.

    Parameters
    ----------
    path
        The file ``sanfrancisco.home.sales.rda``, or the folder that holds it.
    bedrooms
        Keep the homes with this number of bedrooms, or these numbers; None keeps all. One
        bedroom gives the 214 homes of the paper. 0 means studios and, mostly, for homes
        whose bedrooms nobody entered: their median is 1375 square feet.

    Returns
    -------
    DataFrame
        One row a sale with ``squarefeet``, ``latitude`` and ``longitude`` present, in the
        file's order. Price in dollars, coordinates in degrees. Street addresses are dropped.

    Raises
    ------
    InputError
        If the extra ``examples`` is not installed.
    DatasetError
        If the file cannot be had, or is not the file meant.
    """
    rdata = needed("rdata", "examples")
    file = _find_san_francisco(None if path is None else Path(path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata on the encoding and on R's Date class
        read = rdata.read_rda(str(file))["sanfrancisco.home.sales"]
    table = read.drop(columns=_SF_NEVER_NEEDED)
    for name in ("county", "city", "neighborhood"):
        table[name] = table[name].astype(table[name].cat.categories.dtype)
    table["date"] = pd.to_datetime("1970-01-01") + pd.to_timedelta(table["date"], unit="D")
    table["month"] = pd.to_datetime(table["month"].astype(object))
    table = table.astype({"price": "int64", **dict.fromkeys(_SF_WHOLE, "Int64")})
    keep = table[_SF_NEEDED].notna().all(axis=1)
    if bedrooms is not None:
        wanted = [bedrooms] if isinstance(bedrooms, int | float) else list(bedrooms)
        keep &= table["bedrooms"].isin(wanted).fillna(False).astype(bool)
    kept: pd.DataFrame = table[keep].reset_index(drop=True).astype({"squarefeet": "int64"})
    kept.attrs["name"] = "San Francisco home sales"
    return kept


def load_simulated() -> pd.DataFrame:
    """Simulated incomes of 500 people on the unit square, one of them a spatial outlier.

    Made after sections 2 and 4 of Quick, Holan and Wikle (2018), whose own data are not
    published. The last record is the outlier at (0.51, 0.01).

    Returns
    -------
    DataFrame
        Columns ``s1`` and ``s2`` (coordinates on the unit square) and ``income`` (dollars).

    Raises
    ------
    DatasetError
        If the file is missing.

    Examples
    --------
    >>> load_simulated().shape
    (500, 3)
    """
    table = _simulated("simulated.csv")
    table.attrs["name"] = "simulated incomes"
    return table


def load_simulated_truth() -> pd.DataFrame:
    """The true spatial effect w of the simulated incomes, on the log scale, at x and y.

    They are the centres of 40 x 40 cells of the unit square. Raises DatasetError if the file is
    missing.

    Examples
    --------
    >>> load_simulated_truth().shape
    (1600, 3)
    """
    return _simulated("truth.csv")


def _simulated(name: str) -> pd.DataFrame:
    """One file of the simulated data."""
    file = data_folder() / "simulated" / name
    if not file.is_file():
        raise DatasetError(
            f"The simulated data 'simulated/{name}' are missing from the package's data "
            "files. Install the package again, or run data/simulated/make_simulated.py."
        )
    return pd.read_csv(file)


def load_baltimore() -> pd.DataFrame:
    """House sales in Baltimore, 1978: 211 houses with their features.

    From Dubin (1992), as the package libpysal carries them.

    Returns
    -------
    DataFrame
        Column ``price`` in dollars; ``lot_size`` and ``squarefeet`` in square feet; ``age`` in
        years; ``x`` and ``y`` on the Maryland grid, in thousands of feet. ``detached``,
        ``patio``, ``fireplace``, ``air_conditioning`` and ``county`` are 0 or 1.

    Raises
    ------
    InputError
        If libpysal is not installed.
    DatasetError
        If it does not carry the data.
    """
    file = place_of("libpysal", "examples") / "examples" / "baltim" / "baltimore.geojson"
    if not file.is_file():
        raise DatasetError(
            "The installed libpysal does not carry the Baltimore data (its example 'baltim'). "
            'Install a version that does with: pip install "dsstan[examples]"'
        )
    features = json.loads(file.read_text(encoding="utf-8"))["features"]
    table = pd.DataFrame([feature["properties"] for feature in features])
    table = table.rename(columns=_BALTIMORE_COLUMNS)[list(_BALTIMORE_COLUMNS.values())]
    for name, unit in _BALTIMORE_SCALE.items():
        table[name] = np.round(table[name] * unit).astype("int64")
    table = table.astype(dict.fromkeys(_BALTIMORE_WHOLE, "int64"))
    table.attrs["name"] = "Baltimore house sales"
    return table


def _find_san_francisco(path: Path | None) -> Path:
    """The verified file: at the path, in DSSTAN_DATA, in the cache or downloaded."""
    if path is not None:
        file = path / _SF_FILE if path.is_dir() else path
        if not file.is_file():
            raise DatasetError(
                f"There is no file {_SF_FILE!r} at the path given. Give the file itself or the "
                "folder that holds it."
            )
        return _verified(file, "at the path given")
    for file in _from_environment():
        if file.is_file():
            return _verified(file, "in the folder named by DSSTAN_DATA")
    return _download()


def _from_environment() -> Iterator[Path]:
    """Places of the file under the folder that DSSTAN_DATA names."""
    named = os.environ.get("DSSTAN_DATA")
    if named:
        yield Path(named) / "san_francisco" / _SF_FILE
        yield Path(named) / _SF_FILE


def _verified(file: Path, where: str) -> Path:
    """The file, if it is the one meant."""
    if hashlib.sha256(file.read_bytes()).hexdigest() != _SF_SHA256:
        raise DatasetError(
            f"The file {_SF_FILE!r} {where} is not the one meant: its SHA-256 is not "
            f"{_SF_SHA256}. Replace it, or delete it to have it downloaded."
        )
    return file


def _download() -> Path:
    """The file from the user's cache, downloaded on first use."""
    pooch = needed("pooch", "examples")
    pooch.get_logger().setLevel("WARNING")
    base = os.environ.get("DSSTAN_SF_URL", _SF_URL).rstrip("/")
    try:
        got = pooch.retrieve(
            url=f"{base}/{_SF_FILE}",
            known_hash=f"sha256:{_SF_SHA256}",
            fname=_SF_FILE,
            path=Path(platformdirs.user_cache_dir("dsstan")) / "data",
        )
    except Exception as error:  # pooch and requests raise many kinds
        why = (
            f"what {base} sent has another checksum than the file meant"
            if isinstance(error, ValueError) and "hash" in str(error)
            else f"the download from {base} failed ({type(error).__name__})"
        )
        raise DatasetError(
            f"The San Francisco data {_SF_FILE!r} could not be obtained: {why}. There are four "
            "ways: pass its path; set DSSTAN_DATA to the folder that holds it; put it in the "
            f"folder 'data' of the user's cache for dsstan; or download it with network access "
            "(DSSTAN_SF_URL names another server)."
        ) from None
    return Path(got)


def san_francisco_source() -> str | None:
    """Where the San Francisco file would come from without a download; None if nowhere.

    Only looked for, not read: its checksum is verified on loading.
    """
    cached = Path(platformdirs.user_cache_dir("dsstan")) / "data" / _SF_FILE
    for file in (*_from_environment(), cached):
        if file.is_file():
            return str(file)
    return None
