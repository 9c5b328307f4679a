"""Paths of before the rooms: each still gives the name it gave, with a warning."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import dsstan as ds
from dsstan._moved import MOVED, PACKAGES


@pytest.mark.parametrize("old", sorted(MOVED))
def test_every_name_of_an_old_module_is_found_with_a_warning(old):
    stand_in = importlib.import_module(f"dsstan.{old}")
    for place in MOVED[old].split():
        new = importlib.import_module(f"dsstan.{place}")
        public = [name for name in vars(new) if not name.startswith("_")]
        homes = {n: f"{getattr(vars(new)[n], '__module__', '')}." for n in public}
        name = next(n for n, home in homes.items() if home.startswith(f"{new.__name__}."))
        with pytest.warns(DeprecationWarning, match=f"now in dsstan.{place}"):
            assert getattr(stand_in, name) is getattr(new, name)


@pytest.mark.parametrize(
    ("room", "name"), [("release", "write_release"), ("cli", "main"), ("cli", "app")]
)
def test_a_room_with_an_old_name_gives_the_names_of_before(room, name):
    place = PACKAGES[room].split()[0]
    new = importlib.import_module(f"dsstan.{place}")
    with pytest.warns(DeprecationWarning, match=place):
        assert getattr(importlib.import_module(f"dsstan.{room}"), name) is getattr(new, name)


def test_an_old_path_does_not_replace_a_public_function():
    code = "import dsstan as ds; from dsstan.fit import Fit; assert ds.fit.__name__ == 'fit'"
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)
    assert callable(ds.fit)


def test_an_old_module_is_an_attribute_of_the_package():
    with pytest.warns(DeprecationWarning, match=r"core\.errors"):
        assert ds.errors.DsstanError is importlib.import_module("dsstan.core.errors").DsstanError
    with pytest.raises(AttributeError, match="no_such_module"):
        _ = ds.no_such_module


def test_an_old_name_of_what_has_another_now_is_found():
    with pytest.warns(DeprecationWarning, match=r"is now ranks_like_response in dsstan\.table"):
        from dsstan.order import gives_away
    assert gives_away is importlib.import_module("dsstan.table.order_leaks").ranks_like_response


def test_a_name_that_never_was_is_not_found():
    with pytest.raises(ImportError, match="no_such_name"):
        from dsstan.attacker import no_such_name  # noqa: F401
