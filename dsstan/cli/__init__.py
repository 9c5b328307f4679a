"""The command ``dsstan``: options, screens, exit codes, job files.

Nothing is computed here that Python users could not call.
"""

from typing import Any

from dsstan._moved import moved_name


def __getattr__(name: str) -> Any:
    """Names of the module that this room has the name of."""
    return moved_name(__name__, name)
