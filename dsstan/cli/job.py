"""Job files: one release described in TOML, in the names of the options of ``dsstan synthesise``.

A job is data. It is read by the standard library's parser, each key is checked against the
options there are, and nothing in it is evaluated.
"""

from __future__ import annotations

import difflib
import inspect
import tomllib
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dsstan.core.errors import InputError

__all__ = ["arguments_of", "job_keys", "parsed_job", "read_job"]

_LONGEST = 1_000_000
_NUMBERS = "a list of numbers, such as [150000, 300000]"


def job_keys(command: Callable[..., Any] | inspect.Signature) -> dict[str, inspect.Parameter]:
    """The keys a job may have, in the order of the command's options."""
    taken = command if isinstance(command, inspect.Signature) else inspect.signature(command)
    found = {}
    for name, parameter in taken.parameters.items():
        stated = typing.get_args(parameter.annotation)[-1]
        if stated.in_job:
            found[stated.flags[0].strip("-") if stated.flags else name] = parameter
    return found


def read_job(path: Path, command: Callable[..., Any]) -> dict[str, Any]:
    """Arguments for a command, from a job file without steps; a key left out has its default.

    Parameters
    ----------
    path
        The TOML file. Paths in it are taken from the folder it is in.
    command
        ``dsstan synthesise``, whose options are the keys there may be.

    Raises
    ------
    InputError
        If the file can't be read, a key is unknown or missing, or a value is of another kind.
    """
    return arguments_of(parsed_job(path), command, path)


def arguments_of(
    content: Mapping[str, Any],
    command: Callable[..., Any] | inspect.Signature,
    path: Path,
    elsewhere: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Arguments for a command, from what a job file or a part of it holds; see :func:`read_job`.

    ``elsewhere`` says of keys that belong to another place what to do.
    """
    parameters = job_keys(command)
    for key in content:
        if key not in parameters and elsewhere and key in elsewhere:
            raise InputError(f"{path.name} has the key {key!r} here: {elsewhere[key]}")
        if key not in parameters:
            close = difflib.get_close_matches(key, parameters, n=1)
            guess = f" Did you mean {close[0]!r}?" if close else ""
            raise InputError(
                f"{path.name} has the key {key!r}, which is no option.{guess} The keys: "
                f"{', '.join(parameters)}"
            )
    arguments = {}
    for key, parameter in parameters.items():
        if key in content:
            kind, *_, stated = typing.get_args(parameter.annotation)
            free = stated.free_form and type(content[key]) in (int, float, str)
            arguments[parameter.name] = content[key] if free else _as(content[key], kind, key, path)
        elif parameter.default is inspect.Parameter.empty:
            raise InputError(f"{path.name} lacks the key {key!r}, which a job needs")
        else:
            arguments[parameter.name] = parameter.default
    return arguments


def parsed_job(path: Path) -> Mapping[str, Any]:
    """The content of the file."""
    if not path.is_file():
        raise InputError(f"there is no job file {path}")
    try:
        if path.stat().st_size > _LONGEST:
            raise InputError(f"{path.name} is too large for a job")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except tomllib.TOMLDecodeError as error:
        place = str(error).rpartition("(at ")[2].rstrip(")")
        raise InputError(
            f"{path.name} is not TOML: look at {place or 'its syntax'}. A key stands there once, "
            "text stands in quotes, and a number has a decimal point: 0.5, not 0,5"
        ) from None
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        wrong = {UnicodeDecodeError: "its text is not UTF-8", ValueError: "a number is too long"}
        why = wrong.get(type(error), type(error).__name__)
        raise InputError(f"{path.name} can't be read as TOML: {why}") from None


def _as(value: Any, hint: Any, key: str, path: Path) -> Any:
    """The value as an option of this type takes it."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        [hint] = [kind for kind in typing.get_args(hint) if kind is not types.NoneType]
    if typing.get_origin(hint) is tuple:
        kinds = typing.get_args(hint)
        if isinstance(value, list) and len(value) == len(kinds):
            return tuple(_as(v, kind, key, path) for v, kind in zip(value, kinds, strict=True))
        raise InputError(f"{key} in {path.name} must be a list of {len(kinds)} values")
    if hint is Path and isinstance(value, str) and value and "\0" not in value:
        try:
            return path.parent / Path(value).expanduser()
        except RuntimeError:
            raise InputError(
                f"{key} in {path.name} begins with ~ and an unknown user: give a full path"
            ) from None
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise InputError(f"{key} in {path.name} is too large") from None
    if typing.get_origin(hint) is list and isinstance(value, list):
        [kind] = typing.get_args(hint)
        return [_as(v, kind, key, path) for v in value]
    if hint in (int, str, bool) and type(value) is hint:
        return value
    words = {Path: "a path", float: "a number", int: "a whole number", str: "text"}
    kind = words.get(hint, "true or false")
    if typing.get_origin(hint) is list:
        text = typing.get_args(hint) == (str,)
        kind = 'a list of columns, such as ["assessed"]' if text else _NUMBERS
    raise InputError(f"{key} in {path.name} must be {kind}")
