"""Synthetic places through the command line and job files."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from placed_tables import homes
from test_command_line import inside  # noqa: F401

from dsstan.copies.placed import PlacesOptions
from dsstan.core.errors import InputError
from dsstan.release.reading import read_release

MODEL = ("homes.csv", "--formula", "log(price) ~ size", "--coords", "x", "y")
QUICK = (
    "--distance",
    "planar",
    "--seed",
    "5",
    "--engine",
    "direct",
    "--copies",
    "3",
    "--surface",
    "none",
)
MOVED = ("synthesise", *MODEL, *QUICK, "--places", "moved", "--places-groups", "kind")

JOB = """
table = "homes.csv"
coords = ["x", "y"]
distance = "planar"
out = "out"
copies = 3
places = "population"
addresses = "addresses.csv"
cells = 30
surface = "none"
places_groups = ["kind"]
engine = "direct"
seed = 5
[[steps]]
formula = "size ~ x + kind"
threshold = 0.06
[[steps]]
formula = "log(price) ~ size + x"
"""


def addresses():
    """A public list that holds the homes."""
    return pd.concat([homes(200), homes(900, seed=7)])[["x", "y"]]


@pytest.fixture
def here(tmp_path, monkeypatch):
    geopandas, shapely = pytest.importorskip("geopandas"), pytest.importorskip("shapely")
    monkeypatch.chdir(tmp_path)
    homes(200).to_csv("homes.csv", index=False)
    addresses().to_csv("addresses.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the square has no CRS, as the table has none
        geopandas.GeoSeries([shapely.box(0, 0, 1, 1)]).to_file("area.gpkg")
    return tmp_path


def test_places_move_within_the_polygons_of_a_file(inside, here):  # noqa: F811
    made = inside(*MOVED, "--mask", "area.gpkg", "--cells", "36", "--out", "out")
    assert made.returncode == 0, made.stderr
    assert "DISCLOSURE: NOT JUDGED" in made.stdout
    assert "Publish only with a reason" in made.stdout
    assert "3 copies, each record at a synthetic place" in made.stdout
    assert len(made.stdout.splitlines()) <= 20
    assert all(len(line) <= 80 for line in made.stdout.splitlines() if str(here) not in line)
    release = read_release(here / "out")
    assert release.places == "moved"
    places = release.copies[0][["x", "y"]].to_numpy()
    assert ((places >= 0) & (places <= 1)).all()
    summary = json.loads((here / "out" / "confidential" / "summary.json").read_text())
    assert summary["cells"] == 36
    assert "lonely-values" not in summary["verdict"]["warnings"]  # lonely ones are flagged too
    assert summary["lonely"] > 0


def test_inspect_says_what_such_a_release_is(inside, here):  # noqa: F811
    assert inside(*MOVED, "--mask", "area.gpkg", "--cells", "36", "--out", "out").returncode == 0
    shown = inside("inspect", "out")
    assert shown.returncode == 0, shown.stderr
    assert "Places:      moved, uniform in a cell" in shown.stdout
    assert "places inform nothing; 36 cells" in shown.stdout
    assert "the places, then price; all other" in " ".join(shown.stdout.split())
    assert inside("inspect", "out/public").returncode == 0
    (here / "out" / "confidential" / "places.csv").unlink()
    assert "lacks places.csv" in inside("inspect", "out").stderr


def test_the_covariance_reaches_the_models_of_values(inside, here):  # noqa: F811
    asked = (*MOVED, "--mask", "area.gpkg", "--cells", "36", "--out", "out", "--no-report")
    made = inside(*asked, "--covariance", "vecchia", "--neighbours", "7")
    assert made.returncode == 0, made.stderr
    settings = json.loads((here / "out" / "confidential" / "settings.json").read_text())
    (fits,) = settings["fits"]
    assert fits.keys() == {"unrestricted", "restricted"}
    assert all(fit["covariance"]["name"] == "vecchia" for fit in fits.values())
    assert all(fit["covariance"]["neighbours"] == 7 for fit in fits.values())


def test_a_covariance_without_new_places_is_refused_before_sampling(inside, here):  # noqa: F811
    asked = (*MOVED, "--mask", "area.gpkg", "--out", "out", "--dry-run")
    refused = inside(*asked, "--covariance", "predictive_process")
    assert refused.returncode == 2
    assert "take --covariance auto, or keep the places" in refused.stderr


def test_a_limit_that_is_missed_ends_with_five_and_writes_nothing(inside, here):  # noqa: F811
    made = inside(*MOVED, "--mask", "area.gpkg", "--finding", "0.0001", "--out", "out")
    assert made.returncode == 5
    assert "DISCLOSURE: MISSED" in made.stdout
    assert "Do not publish as it is" in made.stdout
    assert "guessable-seed: the seed was given and is so short" in " ".join(made.stdout.split())
    assert "0.01%" in made.stdout
    assert "0.01%" not in made.stderr  # the screen has said why
    assert "dsstan: Nothing was written: " in made.stderr
    assert not (here / "out").exists()


def test_without_a_mask_the_error_says_what_to_type(inside, here):  # noqa: F811
    made = inside(*MOVED, "--out", "out")
    assert made.returncode == 2
    assert "--mask area.gpkg" in made.stderr
    assert "--mask table" in made.stderr
    assert made.stderr.count("\n") == 1
    for option in ("--mask", "--addresses"):
        lost = inside(*MOVED, "--out", "out", option, "nosuch.csv")
        assert lost.returncode == 2
        assert f"{option} nosuch.csv" in lost.stderr


@pytest.mark.filterwarnings("default:the mask is drawn from the table")
def test_a_mask_of_the_table_is_taken_in_words_and_warns(inside, here):  # noqa: F811
    made = inside(*MOVED, "--mask", "table", "--cells", "36", "--out", "out", "--json")
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    assert document["summary"]["mask"] == "table"
    assert "mask-from-table" in document["summary"]["verdict"]["warnings"]


def test_a_population_of_several_columns_lies_at_the_addresses_of_a_file(inside, here):  # noqa: F811
    asked = '\nfloor = "0.1%"\naccept_below_floor = true\nreason = "a test"\n[[steps]]'
    (here / "job.toml").write_text(JOB.replace("\n[[steps]]", asked, 1))
    planned = inside("run", "job.toml", "--dry-run")
    assert planned.returncode == 0, planned.stderr
    assert "population" in planned.stdout
    alone = "the floor judges the last one alone"
    foreseen = f"NOT JUDGED: of several modelled columns {alone}, so model one column, or give"
    assert foreseen in " ".join(planned.stdout.split())
    assert not (here / "out").exists()
    made = inside("run", "job.toml")
    assert made.returncode == 0, made.stderr
    release = read_release(here / "out")
    shown = inside("inspect", "out").stdout
    assert "every column" in shown
    sizes = [len(copy) for copy in release]
    assert f"200, 3 copies with {min(sizes)} to {max(sizes)} records" in shown
    summary = json.loads((here / "out" / "confidential" / "summary.json").read_text())
    assert summary["places_at_risk"]["values_as_if_kept"]["floor"]["asked"] == "0.1%"
    assert alone in summary["disclosure_reason"]
    assert list(release.copies[0].columns) == ["x", "y", "kind", "size", "price"]
    listed = {tuple(row) for row in addresses().to_numpy()}
    for copy in release:
        assert {tuple(row) for row in np.asarray(copy[["x", "y"]])} <= listed


def test_a_dry_run_says_what_will_not_be_judged_and_refuses_columns_that_nothing_makes(
    inside,  # noqa: F811
    here,
):
    asked = ("--addresses", "addresses.csv", "--presence", "3", "--out", "out", "--dry-run")
    planned = " ".join(inside(*MOVED, *asked, "--finding", "0.0001").stdout.split())
    assert "--finding 0.0001 is below the chance of the right address without a release" in planned
    assert "(too few of their group in their cell to inform the copies)" in planned
    assert "DISCLOSURE will be NOT JUDGED: moved places hide where" in planned
    assert "values not judged: --floor" in planned
    lacking = inside("synthesise", *MODEL, *QUICK, "--places", "population", *asked)
    assert lacking.returncode == 2
    assert "takes 'size', which a synthetic population" in lacking.stderr


def test_a_dry_run_says_what_small_groups_and_cells_will_do(inside, here):  # noqa: F811
    table = homes(200)
    table.loc[0, "kind"] = "barn"
    table.to_csv("homes.csv", index=False)
    (here / "job.toml").write_text(JOB.replace("cells = 30", "cells = 600"))
    planned = " ".join(inside("run", "job.toml", "--dry-run").stdout.split())
    assert "groups 3 smallest group 1 " in planned
    assert "% of the records are lonely" in planned
    assert "groups of one record (barn)" in planned
    assert "right address found with a chance of up to about" in planned
    assert "coordinate units lonely" in planned


def test_a_dry_run_says_which_published_releases_leave_a_limit_unjudged(inside, here):  # noqa: F811
    asked = (*MOVED, "--mask", "area.gpkg", "--cells", "36", "--no-report")
    assert inside(*asked, "--out", "out").returncode == 0
    assert inside("publish", "out", "--to", "public", "--accept", "a test").returncode == 0
    again = (*asked, "--finding", "0.5", "--floor", "10%", "--out", "again", "--dry-run")
    planned = " ".join(inside(*again).stdout.split())
    assert "NOT JUDGED: what earlier releases with synthetic places (1)" in planned


KEPT_PLACES = (
    'places = "population"\naddresses = "addresses.csv"\ncells = 30\nsurface = "none"\n'
    'places_groups = ["kind"]\n'
)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (KEPT_PLACES, "", "where places are kept, no intruder"),
        ('"log(price) ~ size + x"', '"size ~ x"\noutcome = "poisson"', "of which no intruder"),
        ("seed = 5", "seed = 5\nattribution = 0.5", "a job with steps has none"),
    ],
)
def test_a_floor_above_the_steps_is_refused_where_nothing_is_judged(
    inside,  # noqa: F811
    here,
    old,
    new,
    message,
):
    (here / "job.toml").write_text(JOB.replace(old, new).replace("seed", 'floor = "10%"\nseed'))
    refused = inside("run", "job.toml", "--dry-run")
    assert refused.returncode == 2
    assert message in refused.stderr


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (
            'outcome = "bracketed"\ncuts = [2.0, 4.0]',
            "step 1: the outcome 'bracketed' can't be drawn",
        ),
        (
            'outcome = "poisson"\noffset = "x"',
            "step 1: a count with an offset can't be drawn at new",
        ),
    ],
)
def test_a_model_that_knows_no_new_places_is_refused_before_sampling(
    inside,  # noqa: F811
    here,
    model,
    message,
):
    (here / "job.toml").write_text(JOB.replace("threshold = 0.06", model))
    refused = inside("run", "job.toml", "--dry-run")
    assert refused.returncode == 2
    assert message in refused.stderr


def test_a_floor_judges_values_as_if_places_were_kept(inside, here):  # noqa: F811
    asked = ("--mask", "area.gpkg", "--finding", "0.99", "--accept-failed", "--threshold", "0.06")
    made = inside(*MOVED, *asked, "--floor", "90%", "--out", "out")
    assert made.returncode == 5, made.stdout + made.stderr
    assert "of values, as if places were kept" in " ".join(made.stdout.split())
    assert not (here / "out").exists()
    made = inside(*MOVED, *asked, "--floor", "0.1%", "--out", "out")
    assert made.returncode == 0, made.stdout + made.stderr
    summary = json.loads((here / "out" / "confidential" / "summary.json").read_text())
    assert summary["disclosure_verdict"] in ("met", "not judged")
    found = summary["places_at_risk"]["values_as_if_kept"]
    assert found["floor"]["asked"] == "0.1%"
    assert found["floor"]["records_below"] == 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mask": "a.gpkg"}, "has no meaning where"),
        ({"places": "moved", "mask": "a", "addresses": "b"}, "there are both"),
        ({"places": "moved", "mask": "a", "number": "kept"}, "has no meaning where"),
        ({"places": "blurred"}, "places must be one of"),
        ({"places": "population", "mask": "a", "number": "some"}, "number must be one of"),
        ({"places": "moved", "mask": "a", "finding": 1.0}, "between 0 and 1"),
        ({"places": "moved", "mask": "a", "presence": 1.0}, "above 1"),
        ({"places": "moved", "mask": "a", "held_back": -1}, "held_back must be a whole number"),
    ],
)
def test_options_that_contradict_each_other_are_refused(given, message):
    with pytest.raises(InputError, match=message):
        PlacesOptions(**given)
