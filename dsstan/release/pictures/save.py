"""Write a picture to a file that only its owner can read; show one in a notebook."""

from __future__ import annotations

import builtins
import io
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from dsstan.core.errors import InputError
from dsstan.core.files.workspace import write_private

if TYPE_CHECKING:
    from plotnine import ggplot

# Inches; plotnine takes more for a mistake.
_LARGEST = 25.0


def save(
    plot: ggplot,
    path: str | os.PathLike[str],
    *,
    width: float | None = None,
    height: float | None = None,
    dpi: int = 150,
) -> Path:
    """Write a picture as PNG, for its owner alone (mode 0600), and return its path.

    Raises InputError if the path or the size can't be used.

    Parameters
    ----------
    plot
        Any plotnine plot.
    path
        Ends in ``.png``. A file that exists is replaced at once, with the same mode.
    width, height
        In inches, both or neither; by default the plot's own size.
    dpi
        Dots per inch.
    """
    from plotnine.exceptions import PlotnineWarning

    target = Path(path).expanduser()
    if target.suffix.lower() != ".png":
        raise InputError(f"a picture is written as PNG: {target.name!r} must end in .png")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} is no folder; make it first")
    if (width is None) != (height is None):
        raise InputError("give width and height, or neither")
    for size in (width, height):
        if size is not None and not 0 < size <= _LARGEST:
            raise InputError(f"width and height are in inches, above 0 and at most {_LARGEST:g}")
    if not dpi > 0:
        raise InputError("dpi must be above 0")
    picture = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlotnineWarning)
        plot.save(picture, format="png", width=width, height=height, dpi=dpi, verbose=False)
    write_private(target, picture.getvalue())
    return target


def show(plot: ggplot, name: str) -> ggplot | None:
    """A picture for a notebook; in a script it is written to ``pictures/NAME.png``.

    Parameters
    ----------
    plot
        Any plotnine plot.
    name
        Of the file, without its ending. The folder (0700) is made in the current one.

    Returns
    -------
    ggplot or None
        The plot where an IPython kernel runs, which draws it as the value of its cell.
    """
    if hasattr(builtins, "get_ipython"):
        return plot
    folder = Path("pictures")
    folder.mkdir(mode=0o700, exist_ok=True)
    print(f"Picture: {save(plot, folder / f'{name}.png')}")
    return None
