"""Every format of tables that is read and written, in one place."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from dsstan.core.errors import InputError
from dsstan.table.as_read import Asked, AsRead
from dsstan.table.formats.arrow import read_feather, read_parquet, write_feather, write_parquet
from dsstan.table.formats.excel import read_excel, write_excel
from dsstan.table.formats.geographic import (
    read_geopackage,
    read_shapefile,
    write_geopackage,
    write_shapefile,
)
from dsstan.table.formats.geojson import read_geojson, write_geojson
from dsstan.table.formats.labelled import read_labelled, write_sas, write_spss, write_stata
from dsstan.table.formats.text import read_text, write_text

__all__ = ["FORMATS", "FORMAT_NAMES", "LIBRARIES", "Format", "format_named", "format_of", "stem_of"]

Reader = Callable[[Path, Asked], pd.DataFrame]
Writer = Callable[[pd.DataFrame, Path, AsRead | None, Collection[str]], None]


@dataclass(frozen=True)
class Format:
    """One format.

    Attributes
    ----------
    name
        As it is typed, and the ending of the copies.
    what
        What such a file is called.
    read, write
        The table of a file, and the file of a table.
    also
        Other endings of such files.
    extra
        The extra of dsstan that installs what it needs; None where nothing is.
    parts
        Endings of the files beside it that belong to it; those after the second may be missing.
    is_text
        Whether a spreadsheet may run what a cell holds, and a dialect says how it is written.
    is_arrow
        Whether it keeps an index, and every type of pandas.
    shapes
        Whether it has geometry: ``"must"``, ``"may"`` or ``"no"``.
    in_python, in_r
        What reads it there.
    """

    name: str
    what: str
    read: Reader
    write: Writer
    also: tuple[str, ...] = ()
    extra: str | None = None
    parts: tuple[str, ...] = ()
    is_text: bool = False
    is_arrow: bool = False
    shapes: str = "no"
    in_python: str = ""
    in_r: str = ""


def _text(name: str, what: str) -> Format:
    return Format(name, what, read_text, write_text, is_text=True, shapes="may")


FORMATS = (
    _text("csv", "CSV"),
    _text("csv.gz", "CSV packed by gzip"),
    _text("tsv", "text with tabs"),
    _text("tsv.gz", "text with tabs packed by gzip"),
    Format(
        *("parquet", "Parquet", read_parquet, write_parquet, ("pq", "geoparquet")),
        is_arrow=True,
        shapes="may",
        in_python="pandas.read_parquet({})  # geopandas.read_parquet where it has places",
        in_r="arrow::read_parquet({})",
    ),
    Format(
        *("feather", "Feather", read_feather, write_feather, ("arrow",)),
        is_arrow=True,
        shapes="may",
        in_python="pandas.read_feather({})  # geopandas.read_feather where it has places",
        in_r="arrow::read_feather({})",
    ),
    Format(
        *("gpkg", "a GeoPackage", read_geopackage, write_geopackage, (), "geo"),
        shapes="must",
        in_python="geopandas.read_file({})",
        in_r="sf::st_read({})",
    ),
    Format(
        *("geojson", "GeoJSON", read_geojson, write_geojson, ("json",), "geo"),
        shapes="must",
        in_python="geopandas.read_file({})",
        in_r="sf::st_read({})",
    ),
    Format(
        *("shp", "a shapefile", read_shapefile, write_shapefile, (), "geo"),
        parts=("shx", "dbf", "prj", "cpg"),
        shapes="must",
        in_python="geopandas.read_file({})",
        in_r="sf::st_read({})",
    ),
    Format(
        *("xlsx", "an Excel workbook", read_excel, write_excel, (), "excel"),
        in_python="pandas.read_excel({})",
        in_r="readxl::read_excel({})",
    ),
    Format(
        *("dta", "a Stata file", partial(read_labelled, format="dta"), write_stata, (), "stats"),
        in_python="pandas.read_stata({}, convert_categoricals=False)",
        in_r="haven::read_dta({})",
    ),
    Format(
        *("sav", "an SPSS file", partial(read_labelled, format="sav"), write_spss, (), "stats"),
        in_python="pyreadstat.read_sav({})",
        in_r="haven::read_sav({})",
    ),
    Format(
        *("zsav", "a packed SPSS file", partial(read_labelled, format="zsav")),
        *(write_spss, (), "stats"),
        in_python="pyreadstat.read_sav({})",
        in_r="haven::read_sav({})",
    ),
    Format(
        *("xpt", "SAS transport", partial(read_labelled, format="xpt"), write_sas, (), "stats"),
        in_python="pyreadstat.read_xport({})",
        in_r="haven::read_xpt({})",
    ),
)
"""The formats; where one ends like another, the longer ending counts."""

FORMAT_NAMES = tuple(one.name for one in FORMATS)
"""What ``format`` may be."""

LIBRARIES = (
    ("geopandas", "geo", "GeoPackage, GeoJSON, shapefiles and tables with points"),
    ("openpyxl", "excel", "Excel workbooks"),
    ("pyreadstat", "stats", "files of Stata, SPSS and SAS transport"),
)
"""What the extras install, and what it is for."""

_SAVE_AS = {
    **dict.fromkeys(("xls", "xlsm", "xlsb", "ods"), "xlsx"),
    **dict.fromkeys(("fgb", "kml", "gml", "gdb", "zip"), "gpkg"),
    **dict.fromkeys(("sas7bdat",), "xpt"),
    **dict.fromkeys(("por",), "sav"),
    **dict.fromkeys(("txt", "dat"), "csv"),
    **dict.fromkeys(("rds", "rda", "rdata", "pkl", "pickle"), "parquet"),
}
"""What to save other files as."""


def format_of(path: Path) -> Format:
    """The format of a file by its ending; raises InputError if it is none of these."""
    name = path.name.lower()
    found = [(end, one) for one in FORMATS for end in (one.name, *one.also)]
    fits = [(len(end), one) for end, one in found if name.endswith(f".{end}")]
    if fits:
        return max(fits, key=lambda pair: pair[0])[1]
    other = _SAVE_AS.get(name.rpartition(".")[2])
    do = f"save it as .{other}" if other else "save it as one of these"
    raise InputError(
        f"{path.name} is of no kind that is read ({', '.join('.' + n for n in FORMAT_NAMES)}): {do}"
    )


def stem_of(path: Path) -> str:
    """The name of a file without the ending of its format, if it has one."""
    ends = sorted((end for one in FORMATS for end in (one.name, *one.also)), key=len, reverse=True)
    for end in ends:
        if path.name.lower().endswith(f".{end}"):
            return path.name[: -len(end) - 1]
    return path.stem


def format_named(name: str) -> Format:
    """The format of a name; raises InputError if there is none of it."""
    for one in FORMATS:
        if one.name == name:
            return one
    raise InputError(f"format must be one of {', '.join(FORMAT_NAMES)}, got {name!r}")
