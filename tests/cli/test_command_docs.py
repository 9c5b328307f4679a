"""``docs/cli.md`` says what the command line does."""

from __future__ import annotations

import json
import re
import signal

import pytest
import typer
from test_command_line import MODEL, inside  # noqa: F401

import dsstan as ds
from conftest import ROOT, small_table
from dsstan.cli.command_line import EPILOG, app
from dsstan.cli.exit_codes import EXIT_CODES, EXIT_INTERRUPTED
from dsstan.cli.session import LOG_LEVELS
from dsstan.release.write import write_release

PAGE = (ROOT / "docs" / "cli.md").read_text()

COMMANDS = typer.main.get_command(app).commands


def section(name):
    return PAGE.partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def quoted(text):
    """Words in backticks."""
    return set(re.findall(r"`([^`]+)`", text))


def keys(value):
    """Keys of the document and of the objects of one level below, lists of objects included."""
    found = set(value)
    for inner in value.values():
        inner = inner[0] if isinstance(inner, list) and inner else inner
        if isinstance(inner, dict):
            found |= set(inner)
    return found


def test_every_command_has_a_row():
    named = {words.split()[0] for words in quoted(section("Commands"))}
    assert set(COMMANDS) <= named


def test_every_option_on_the_page_exists():
    options = {"--help", "--show-completion", "--install-completion"}
    for command in (typer.main.get_command(app), *COMMANDS.values()):
        for parameter in command.params:
            options |= {*parameter.opts, *parameter.secondary_opts}
    named = set(re.findall(r"(?<![\w-])--?[a-z][\w-]*", PAGE)) - {"-m"}
    assert len(named) > 20
    assert named <= options, named - options


def test_the_exit_codes_are_those_of_the_command_in_page_and_help():
    ended = {128 + signal.SIGHUP, 128 + signal.SIGTERM}
    real = {0, EXIT_INTERRUPTED, *ended, *(code for _, code in EXIT_CODES)}
    rows = " ".join(re.findall(r"^\| ([\d, ]+) \|", section("Exit codes"), re.M))
    on_page = {int(code) for code in re.findall(r"\d+", rows)}
    in_help = {int(code) for code in re.findall(r"\d+", EPILOG)}
    assert on_page == in_help == real


def test_every_level_of_the_log_is_named():
    assert set(LOG_LEVELS) <= quoted(section("Options before the command"))


@pytest.mark.parametrize("command", ["doctor", "inspect", "dry run"])
def test_every_key_of_a_document_is_on_the_page(inside, kept, tmp_path, command):  # noqa: F811
    small_table().to_csv(tmp_path / "homes.csv", index=False)
    if command == "doctor":
        call = ("doctor", "--check", "--json")
    elif command == "inspect":
        release = ds.synthesise(kept, 3, seed=1, accept_failed=True)
        call = ("inspect", write_release(release, tmp_path / "out", report=False), "--json")
    else:
        call = ("synthesise", tmp_path / "homes.csv", *MODEL, "--out", tmp_path / "o")
        call += ("--dry-run", "--json", "--engine", "embedded")
    found = json.loads(inside(*call).stdout)
    found.pop("plan", None)
    assert keys(found) <= quoted(section("JSON")) | {"total"}
