"""One progress bar for long work, silent where standard error is not a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

Advance = Callable[[float], None]


@contextmanager
def progress_bar(label: str, show: bool | None = None) -> Iterator[Advance]:
    """A bar with the time left; yields a function that takes the share done.

    Parameters
    ----------
    label
        What is going on.
    show
        True or False; by default only in a terminal.
    """
    hide = None if show is None else not show
    shape = "{l_bar}{bar}| {elapsed}<{remaining}"
    with tqdm(total=1.0, desc=label, disable=hide, bar_format=shape, leave=False) as bar:

        def advance(share: float) -> None:
            bar.update(max(0.0, min(1.0, share) - bar.n))

        yield advance
