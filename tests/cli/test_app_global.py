"""Options before the command, help, version, completion, and how a command ends."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_command_line import MODEL, environment, inside  # noqa: F401

from conftest import small_table
from dsstan.cli import command_line as cli
from dsstan.cli.exit_codes import EXIT_CODES, EXIT_INTERRUPTED
from dsstan.core.errors import DsstanError, DsstanWarning, EngineError, InputError
from dsstan.covariance.protection import PROTECTIONS
from dsstan.table.formats.kinds import FORMAT_NAMES

PLANTED = "PLANTED 4321.123456789"

COMMANDS = (
    *("init", "run", "inspect", "publish", "ledger", "synthesise", "compare", "demo", "doctor"),
)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "homes.csv"
    small_table(30, seed=9, shared=4).to_csv(path, index=False)
    return path


@pytest.fixture
def release_of(inside, file, tmp_path):  # noqa: F811
    """Calls synthesise on the table; global options stand before it."""

    def call(*options, before=()):
        out = tmp_path / "out"
        return inside(*before, "synthesise", file, *MODEL, "--out", out, *options)

    return call


def failing(kind, text=PLANTED):
    def fail(*arguments, **options):
        raise kind(text)

    return fail


# Help, version, the same command as a module


def test_help_shows_the_three_commands_of_a_first_release_in_their_order(inside):  # noqa: F811
    text = inside("--help").stdout
    places = [text.index(f" {name} ") for name in COMMANDS]
    assert places == sorted(places)
    assert "A first release, in this order" in text


def test_help_names_every_exit_code(inside):  # noqa: F811
    text = " ".join(inside("--help").stdout.split())
    for code in (0, EXIT_INTERRUPTED, *(code for _, code in EXIT_CODES)):
        assert f" {code} " in text, code


def test_each_class_of_error_has_one_exit_code_and_the_widest_comes_last():
    kinds = [kind for kind, _ in EXIT_CODES]
    assert kinds[-1] is DsstanError
    assert len(set(kinds)) == len(kinds)


def test_the_version_is_the_packages(inside):  # noqa: F811
    import dsstan

    result = inside("--version")
    assert (result.returncode, result.stdout) == (0, f"dsstan {dsstan.__version__}\n")


def test_the_package_run_as_a_module_is_the_same_command():
    result = subprocess.run(
        [sys.executable, "-m", "dsstan", "--version"], capture_output=True, text=True, timeout=120
    )
    assert (result.returncode, result.stdout) == (0, f"dsstan {cli.__version__}\n")


# Completion


def completions(typed):
    """What bash is offered after this line, by the program that its completion script asks."""
    result = subprocess.run(
        [sys.executable, "-m", "dsstan"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "_DSSTAN_COMPLETE": "complete_bash",
            "COMP_WORDS": typed,
            "COMP_CWORD": str(len(typed.split(" ")) - 1),
        },
        timeout=120,
    )
    return result.stdout.split()


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("dsstan ", COMMANDS),
        ("dsstan synthesise t.csv --protection ", (*PROTECTIONS, "auto")),
        ("dsstan synthesise t.csv --engine ", ("auto", "cmdstan", "direct", "embedded")),
        ("dsstan synthesise t.csv --format ", FORMAT_NAMES),
        ("dsstan compare t.csv --protection p", ("paper", "preserving")),
    ],
)
def test_a_shell_is_offered_commands_and_values(typed, offered):
    assert sorted(completions(typed)) == sorted(offered)


def test_the_completion_script_can_be_shown():
    result = subprocess.run(
        [sys.executable, "-m", "dsstan", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        timeout=120,
    )
    assert result.returncode == 0
    assert "COMP_WORDS" in result.stdout


def test_completion_is_installed_for_the_command_by_its_name(tmp_path):
    result = subprocess.run(
        [sys.executable, "-m", "dsstan", "--install-completion", "bash"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "HOME": str(tmp_path),
            "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
        },
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert (tmp_path / ".bash_completions" / "dsstan.sh").is_file()
    assert "dsstan.sh" in (tmp_path / ".bashrc").read_text()


# Debug, log, quiet


def test_an_error_of_dsstan_shows_no_traceback_unless_asked(release_of, monkeypatch):
    monkeypatch.setattr(
        "dsstan.cli.commands.synthesise.release_of", failing(EngineError, "the engine broke")
    )
    plain = release_of()
    assert (plain.returncode, plain.stderr) == (1, "dsstan: the engine broke\n")


@pytest.mark.parametrize("how", ["option", "variable"])
def test_debug_shows_tracebacks_and_warns_that_they_may_hold_data(release_of, monkeypatch, how):
    monkeypatch.setattr(
        "dsstan.cli.commands.synthesise.release_of", failing(EngineError, "the engine broke")
    )
    if how == "variable":
        monkeypatch.setenv("DSSTAN_DEBUG", "1")
    told = release_of(before=("--debug",) if how == "option" else ())
    assert told.returncode == 1
    assert "Traceback" in told.stderr
    assert "the traceback may show values of your data" in told.stderr
    assert told.stderr.splitlines()[-1] == "dsstan: the engine broke"


def test_debug_ends_with_the_call(release_of, monkeypatch):
    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", failing(InputError, "wrong"))
    release_of(before=("--debug",))
    assert "Traceback" not in release_of().stderr


@pytest.mark.parametrize(("level", "shown"), [("info", True), ("warning", False)])
def test_the_log_says_steps_and_seconds_from_the_level_asked_for(
    release_of,
    monkeypatch,
    level,
    shown,
):
    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", failing(InputError, "wrong"))
    result = release_of(before=("--log-level", level))
    assert ("info dsstan: reading: done in" in result.stderr) is shown
    assert result.returncode == 2


def test_an_unknown_level_is_a_plain_error(release_of):
    result = release_of(before=("--log-level", "loud"))
    assert result.returncode == 2
    assert result.stderr == (
        "dsstan: --log-level must be one of debug, info, warning, error, got 'loud'\n"
    )


@pytest.mark.parametrize(
    ("before", "shown"), [((), True), (("-q",), False), (("--log-level", "error"), False)]
)
def test_warnings_are_shown_unless_only_errors_are_asked_for(
    release_of,
    monkeypatch,
    before,
    shown,
):
    import warnings

    def warn(*arguments, **options):
        warnings.warn("weigh this", DsstanWarning, stacklevel=1)
        raise InputError("wrong")

    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", warn)
    monkeypatch.setattr(warnings, "filters", [("always", None, Warning, None, 0)])
    result = release_of(before=before)
    assert ("warning: weigh this" in result.stderr) is shown
    assert "dsstan: wrong" in result.stderr


def test_the_log_of_cmdstanpy_stays_silent_and_is_given_back(release_of, monkeypatch):
    seen = []

    def look(*arguments, **options):
        seen.append(logging.getLogger("cmdstanpy").disabled)
        raise InputError("wrong")

    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", look)
    release_of(before=("--log-level", "debug"))
    assert seen == [True]
    assert not logging.getLogger("cmdstanpy").disabled
    assert logging.getLogger("dsstan").handlers == []


def test_quiet_prints_nothing_on_standard_output(inside):  # noqa: F811
    result = inside("-q", "doctor")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


# Interrupted


def test_an_interrupt_ends_with_130_and_one_line(release_of, monkeypatch):
    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", failing(KeyboardInterrupt))
    result = release_of()
    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == "dsstan: interrupted; nothing was published\n"


def test_an_interrupt_after_the_release_is_there_says_so(release_of, monkeypatch, tmp_path):
    def written_then_interrupted(*arguments, **options):
        (tmp_path / "out").mkdir()
        raise KeyboardInterrupt

    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", written_then_interrupted)
    result = release_of()
    assert result.returncode == 130
    assert result.stderr == f"dsstan: interrupted; what is there is whole: {tmp_path / 'out'}\n"


def test_an_interrupted_comparison_says_that_it_can_go_on(inside, file, tmp_path, monkeypatch):  # noqa: F811
    grid = tmp_path / "grid"

    def kept_then_interrupted(*arguments, **options):
        grid.mkdir()
        (grid / "run.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("dsstan.cli.commands.compare.compare", kept_then_interrupted)
    result = inside("compare", file, *MODEL, "--out", grid)
    assert result.returncode == 130
    assert "goes on from the finished settings" in result.stderr


# Errors in JSON


@pytest.mark.parametrize(
    ("kind", "code"), [(InputError, 2), (EngineError, 1), (KeyboardInterrupt, 130)]
)
def test_an_error_is_one_json_object_where_json_was_asked_for(release_of, monkeypatch, kind, code):
    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", failing(kind, "wrong"))
    result = release_of("--json")
    assert result.returncode == code
    [error] = json.loads(result.stdout).values()
    assert error["exit_code"] == code
    named = "Interrupted" if kind is KeyboardInterrupt else kind.__name__
    assert error["type"] == named
    assert result.stderr == f"dsstan: {error['message']}\n"


def test_an_unforeseen_error_in_json_keeps_its_text_back(release_of, monkeypatch):
    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", failing(KeyError))
    result = release_of("--json")
    assert json.loads(result.stdout)["error"]["type"] == "KeyError"
    assert "4321" not in result.stdout + result.stderr


def test_a_wrong_command_line_is_an_error_in_json_too(inside):  # noqa: F811
    result = inside("synthesise", "--json")
    error = json.loads(result.stdout)["error"]
    assert (result.returncode, error["exit_code"]) == (2, 2)
    assert "Missing" in error["message"]


def test_what_others_print_does_not_spoil_the_document(release_of, monkeypatch):
    def chatty(*arguments, **options):
        print("hello")
        raise InputError("wrong")

    monkeypatch.setattr("dsstan.cli.commands.synthesise.release_of", chatty)
    result = release_of("--json")
    assert json.loads(result.stdout)["error"]["message"] == "wrong"
    assert "hello" in result.stderr


def test_doctor_in_json_lists_what_it_found(inside, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    found = json.loads(inside("doctor", "--json").stdout)
    assert (found["command"], found["confidential"]) == ("doctor", False)
    assert [f["what"] for f in found["findings"][:2]] == ["dsstan", "python"]
    assert all(f["there"] for f in found["findings"][:2])
    assert Path(found["findings"][-1]["detail"]).name == "programs"
