"""The templates of the two pages, and the macros that draw pictures and tables."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from typing import TYPE_CHECKING, Any

from dsstan.release.report.words import percent, plural

if TYPE_CHECKING:
    from jinja2 import Environment


@cache
def environment() -> Environment:
    """Templates that escape whatever is put into them, and stop at an unknown name."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("dsstan.release.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = found.get_template("report.js").render()
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    found.globals.update(script_hash=digest, percent=percent, plural=plural)
    return found


def pictures() -> Any:
    """The macros of ``pictures.html``; what they return is markup."""
    return environment().get_template("pictures.html").module
