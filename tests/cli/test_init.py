"""``dsstan init`` writes a job file that ``dsstan run`` reads, and no value of a table."""

from __future__ import annotations

import re
import tomllib

import numpy as np
import pandas as pd
import pytest
from test_command_line import inside  # noqa: F401

from conftest import small_table
from dsstan.cli.command_line import synthesise
from dsstan.cli.commands.init import propose
from dsstan.cli.commands.job_template import FLOOR, PLACEHOLDERS, job_text
from dsstan.cli.job import job_keys, read_job
from dsstan.copies.option_fields import GROUPS
from dsstan.core.errors import InputError
from dsstan.models.weights import PAPER_CORRELATION

COMMENTED = re.compile(r"^# (\w+) = ", re.MULTILINE)
"""A key that stands at its default."""


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def homes(place):
    """A table of longitudes, every value recognisable."""
    table = small_table(30, seed=9, shared=4).rename(columns={"east": "Lon", "north": "Lat"})
    table["note"] = [f"secret{i}" for i in range(30)]
    table.to_csv(place / "homes.csv", index=False)
    return table


def test_a_new_job_has_every_key_once(inside, place):  # noqa: F811
    assert inside("init", "job.toml").returncode == 0
    text = (place / "job.toml").read_text()
    keys = [*COMMENTED.findall(text), *tomllib.loads(text)]
    assert sorted(keys) == sorted(job_keys(synthesise))


def test_a_new_job_is_read_as_it_is_with_all_defaults_and_a_floor(inside, place):  # noqa: F811
    inside("init", "job.toml")
    found = read_job(place / "job.toml", synthesise)
    for key, parameter in job_keys(synthesise).items():
        if key not in PLACEHOLDERS:
            expected = {"floor": FLOOR, "publish": []}.get(key, parameter.default)
            assert found[parameter.name] == expected, key


def test_a_job_with_every_line_uncommented_is_read_and_says_the_defaults(inside, place):  # noqa: F811
    inside("init", "job.toml")
    path = place / "job.toml"
    path.write_text(COMMENTED.sub(r"\1 = ", path.read_text()))
    assert set(tomllib.loads(path.read_text())) == set(job_keys(synthesise))
    found = read_job(path, synthesise)
    for key, parameter in job_keys(synthesise).items():
        if key not in PLACEHOLDERS and parameter.default is not None:
            assert found[parameter.name] == parameter.default, key
        elif parameter.default is None:
            assert found[parameter.name] is not None, key


def test_the_options_stand_in_the_groups_of_the_help_with_its_text():
    text = job_text(synthesise, {})
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(GROUPS)
    assert "# What to leave to an intruder about every record" in text
    before, _, _ = text.partition("# gamma = ")
    assert before.rstrip().endswith("# Global risk parameter, 0 to inf.")


def test_the_rule_without_a_threshold_is_said_to_be_one():
    before, _, after = job_text(synthesise, {}).partition("# correlation = ")
    said = before.replace("\n# ", " ").rstrip()
    assert said.endswith("Unless a threshold is given, this is the rule:")
    assert float(after.split()[0]) == PAPER_CORRELATION


def test_options_of_a_run_are_no_keys_of_a_job(place):
    text = job_text(synthesise, {}) + "dry_run = true\n"
    (place / "job.toml").write_text(text)
    with pytest.raises(InputError, match="key 'dry_run'"):
        read_job(place / "job.toml", synthesise)


def test_the_file_is_for_its_owner_alone(inside, place):  # noqa: F811
    import os

    before = os.umask(0o000)
    try:
        inside("init", "job.toml")
    finally:
        os.umask(before)
    assert (place / "job.toml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("kind", ["file", "dangling link"])
def test_what_exists_is_refused_and_left_as_it_was(inside, place, kind):  # noqa: F811
    if kind == "file":
        (place / "job.toml").write_text("mine")
    else:
        (place / "job.toml").symlink_to(place / "elsewhere")
    result = inside("init", "job.toml")
    assert result.returncode == 2
    assert "exists and is not overwritten" in result.stderr
    assert not (place / "elsewhere").exists()
    assert kind != "file" or (place / "job.toml").read_text() == "mine"


def test_a_table_gives_coordinates_distance_and_columns_but_no_value(inside, homes, place):  # noqa: F811
    (place / "jobs").mkdir()
    result = inside("init", "jobs/job.toml", "--table", "homes.csv", "--out", "out")
    assert result.returncode == 0, result.stderr
    text = (place / "jobs" / "job.toml").read_text()
    found = tomllib.loads(text)
    assert found["coords"] == ["Lon", "Lat"]
    assert found["distance"] == "projected"
    assert (found["table"], found["out"]) == ("../homes.csv", "../out")
    words = " ".join(text.replace("\n# ", " ").split())
    assert "Columns of numbers: x, value. Other columns: note." in words
    assert "Fill in:    formula" in result.stdout
    values = {f"{v:.6f}"[:6] for v in homes.select_dtypes("number").to_numpy().ravel()}
    said = text + result.stdout + result.stderr
    assert not [v for v in values if v in said]
    assert "secret" not in said


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["North_km", "East_km", "v"], ("East_km", "North_km")),
        (["x (m)", "X m", "Y m", "v"], ("X m", "Y m")),
        (["east", "east_km", "north", "north_km"], ("east", "north")),
        (["team", "form", "v"], None),
    ],
)
def test_coordinates_with_a_unit_in_their_names_are_found(names, found):
    assert propose(pd.DataFrame([[1.0] * len(names)], columns=names)).coords == found


def test_every_column_is_listed_with_what_it_looks_like_above_those_to_publish(inside, place):  # noqa: F811
    rng = np.random.default_rng(3)
    value = rng.normal(10, 1, 40).round(2)
    table = pd.DataFrame(
        {
            "x": rng.uniform(size=40),
            "y": rng.uniform(size=40),
            "value": value,
            "parcel": [f"P{k}" for k in rng.permutation(40)],
            "assessed": value + rng.normal(0, 0.01, 40),
            "year": rng.integers(1990, 2000, 40),
        }
    )
    table.to_csv(place / "t.csv", index=False)
    inside("init", "job.toml", "--table", "t.csv", "--formula", "value ~ 1")
    text = (place / "job.toml").read_text()
    listed = text.partition("Columns to publish as they are")[2].partition("publish = []")[0]
    roles = dict(re.findall(r"^#   (\w+): (\w+)$", listed, re.MULTILINE))
    assert roles == {
        "x": "coordinate",
        "y": "coordinate",
        "value": "response",
        "parcel": "identifier",
        "assessed": "proxy",
        "year": "covariate",
    }


def test_a_job_from_a_table_is_read_with_paths_from_its_own_folder(inside, homes, place):  # noqa: F811
    (place / "jobs").mkdir()
    inside(
        *("init", "jobs/job.toml", "--table", "homes.csv", "--formula", "log(value) ~ x"),
        *("--coords", "Lon", "Lat"),
    )
    found = read_job(place / "jobs" / "job.toml", synthesise)
    assert found["table"].resolve() == (place / "homes.csv").resolve()
    assert (found["formula"], found["coords"]) == ("log(value) ~ x", ("Lon", "Lat"))


NAMES = ['a "quote"', "back\\slash", "tab\tname", "line\nbreak", "del\x7f", "é", "]\n[x"]
"""Column names that would end a comment or a string, were they written as they are."""


@pytest.mark.parametrize("name", NAMES)
def test_any_column_name_stays_a_name(inside, place, name):  # noqa: F811
    table = pd.DataFrame({name: np.arange(4.0), "lat": np.arange(4.0), "lon": np.arange(4.0)})
    table.to_parquet(place / "t.parquet")
    result = inside("init", "job.toml", "--table", "t.parquet", "--coords", name, "lat")
    assert result.returncode == 0, result.stderr
    found = tomllib.loads((place / "job.toml").read_text())
    assert found["coords"] == [name, "lat"]
    assert set(found) == {*PLACEHOLDERS, "distance", "floor", "publish"}


def test_it_writes_a_floor_with_its_meaning_in_prices_of_the_table(inside, place):  # noqa: F811
    pd.DataFrame({"x": [0.0, 1, 2], "y": [0.0, 1, 2], "price": [1e5, 2.2e5, 3e5]}).to_csv(
        place / "homes.csv", index=False
    )
    formula = "log(price) ~ 1"
    inside("init", "job.toml", "--table", "homes.csv", "--formula", formula)
    text = (place / "job.toml").read_text()
    words = " ".join(text.replace("\n# ", " ").split())
    assert "at the median price of 220,000 nobody may be placed within +/-22,000 at 95%" in words
    assert 'floor = "10%"' in text.splitlines()
    assert read_job(place / "job.toml", synthesise)["floor"] == "10%"
    assert "\naccept_below_floor" not in text


def test_a_job_may_have_the_floor_as_a_number(place):
    (place / "job.toml").write_text(job_text(synthesise, {"floor": 0.05}))
    assert read_job(place / "job.toml", synthesise)["floor"] == 0.05
    (place / "other.toml").write_text(job_text(synthesise, {}) + "floor = true\n")
    with pytest.raises(InputError, match=r"floor in other\.toml must be"):
        read_job(place / "other.toml", synthesise)


@pytest.mark.parametrize(("scale", "distance"), [(1.0, "projected"), (1e5, "planar")])
def test_degrees_and_metres_of_the_same_names_are_told_apart(inside, homes, place, scale, distance):  # noqa: F811
    homes = homes.rename(columns={"Lon": "site_lon", "Lat": "site_lat"})
    homes[["site_lon", "site_lat"]] *= scale
    homes.to_csv(place / "homes.csv", index=False)
    inside("init", "job.toml", "--table", "homes.csv")
    found = tomllib.loads((place / "job.toml").read_text())
    assert found["coords"] == ["site_lon", "site_lat"]
    assert found["distance"] == distance


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        ("log(value) ~ rooms", "rooms"),
        ("log(prise) ~ 1", "prise"),
        ("log(value ~ 1", "log(value"),
    ],
)
def test_a_formula_that_does_not_fit_the_table_is_refused_before_a_job_is_written(
    inside,  # noqa: F811
    homes,
    place,
    formula,
    said,
):
    done = inside("init", "job.toml", "--table", "homes.csv", "--formula", formula)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (place / "job.toml").exists()


def test_a_text_among_numbers_is_said_and_the_job_written(inside, homes, place):  # noqa: F811
    table = homes.astype({"value": object})
    table.loc[3, "value"] = "k.A."
    table.to_csv(place / "homes.csv", index=False)
    done = inside("init", "job.toml", "--table", "homes.csv", "--formula", "log(value) ~ 1")
    said = " ".join(done.stdout.split())
    assert "Found: Response 'value' must hold integers or floats" in said, done.stderr
    assert "text that is no number in 1 row (position 3" in said
    assert 'say so: na = ["TEXT"]' in said
    assert "k.A." not in said
    assert (place / "job.toml").exists()


def test_the_comment_on_the_threshold_names_its_unit(inside, homes, place):  # noqa: F811
    inside("init", "job.toml", "--table", "homes.csv")
    text = (place / "job.toml").read_text()
    comment = re.search(r"((?:# .*\n)+)# threshold = ", text)[1].replace("\n# ", " ")
    assert "In kilometres" in comment


def test_the_comment_without_a_table_names_both_units(inside, place):  # noqa: F811
    inside("init", "job.toml")
    text = (place / "job.toml").read_text().replace("\n# ", " ")
    assert 'In the unit of the coordinates; kilometres under distance = "projected".' in text
