"""What an engine is: a way to sample from a Stan program, and to evaluate it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import numpy as np

from dsstan.core.arrays import Floats
from dsstan.core.errors import InputError, check_count, whole_number
from dsstan.engines.programs import Program

StanData = Mapping[str, Any]
Advance = Callable[[float], None]

_ITERATION = re.compile(r"Chain \[(\d+)\] Iteration:\s+(\d+) / \d+")

SAMPLER_COLUMNS = ("accept_stat__", "treedepth__", "divergent__", "energy__")
"""Columns of the sampler that every engine returns, in this order."""


@dataclass(frozen=True)
class SamplerSettings:
    """Settings of the No-U-Turn sampler, the same for both engines."""

    chains: int = 4
    warmup: int = 1000
    samples: int = 1000
    adapt_delta: float = 0.9
    max_treedepth: int = 10
    metric: str = "dense_e"

    def __post_init__(self) -> None:
        for name in ("chains", "warmup", "samples", "max_treedepth"):
            object.__setattr__(self, name, check_count(name, getattr(self, name)))
        check_count("chains times samples", self.chains * self.samples)
        if not 0 < self.adapt_delta < 1:
            raise InputError("adapt_delta must lie between 0 and 1")
        if self.metric not in ("unit_e", "diag_e", "dense_e"):
            raise InputError("metric must be unit_e, diag_e or dense_e")


class IterationCount:
    """The share of a run that is done, from what Stan prints of each chain.

    Parameters
    ----------
    settings
        Of the run.
    advance
        Takes the share done; None where nobody asks.
    """

    def __init__(self, settings: SamplerSettings, advance: Advance | None) -> None:
        self._total = settings.chains * (settings.warmup + settings.samples)
        self._advance = advance
        self._done: dict[str, int] = {}
        self._lock = Lock()  # each chain may be read by a thread of its own

    def read(self, line: str) -> bool:
        """Take a line; False where it is not one of progress."""
        match = _ITERATION.search(line)
        if match is None:
            return False
        with self._lock:
            self._done[match[1]] = int(match[2])
            if self._advance is not None:
                self._advance(min(1.0, sum(self._done.values()) / self._total))
        return True


@dataclass(frozen=True)
class Draws:
    """Draws of one run.

    Attributes
    ----------
    names
        Column names as in Stan's CSV with brackets, e.g. ``beta[1]``.
    values
        Shape (chains, samples, columns).
    sampler
        Shape (chains, samples, 4), columns ``SAMPLER_COLUMNS``.
    """

    names: tuple[str, ...]
    values: Floats
    sampler: Floats

    def __getitem__(self, name: str) -> Floats:
        """Draws of a scalar (chains, samples), or of a vector (chains, samples, length)."""
        if name in self.names:
            return np.asarray(self.values[:, :, self.names.index(name)])
        columns = [i for i, column in enumerate(self.names) if column.startswith(f"{name}[")]
        if not columns:
            raise KeyError(name)
        return np.asarray(self.values[:, :, columns])


class Engine(Protocol):
    """One small interface; nothing else in the package knows which engine runs."""

    name: str

    @property
    def version(self) -> str:
        """Version of the engine and of Stan, for the record."""

    @classmethod
    def missing(cls) -> str | None:
        """None where the engine can run; otherwise what is missing and how to get it."""

    def sample(
        self,
        program: Program,
        data: StanData,
        *,
        settings: SamplerSettings,
        seed: int,
        inits: Sequence[Mapping[str, Any]],
        advance: Advance | None = None,
    ) -> Draws:
        """Sample. ``inits`` holds natural parameters, one mapping a chain."""


def check_seed(seed: int) -> int:
    """A seed that both engines take as it is, from 1 to 2^31 - 1."""
    whole = whole_number(seed)
    if whole is None or not 1 <= whole < 2**31:
        raise InputError("a Stan seed must be a whole number from 1 to 2147483647")
    return whole


def jsonable(value: Any) -> Any:
    """Numbers and arrays as JSON writes them; no other kind may reach Stan."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind not in "fiub" or not np.all(np.isfinite(value)):
            raise InputError("Stan data must be finite numbers")
        return value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError("Stan data must be finite numbers")
    if isinstance(value, Mapping):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    return value
