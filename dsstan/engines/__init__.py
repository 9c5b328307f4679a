"""Engines that run the Stan programs, behind one small interface."""

from __future__ import annotations

from dsstan.core.errors import EngineError, InputError
from dsstan.engines.base import SAMPLER_COLUMNS, Draws, Engine, SamplerSettings
from dsstan.engines.cmdstan import CmdStanEngine
from dsstan.engines.embedded import EmbeddedEngine

__all__ = [
    "SAMPLER_COLUMNS",
    "CmdStanEngine",
    "Draws",
    "EmbeddedEngine",
    "Engine",
    "SamplerSettings",
    "get_engine",
]

ENGINES: dict[str, type[CmdStanEngine] | type[EmbeddedEngine]] = {
    "cmdstan": CmdStanEngine,
    "embedded": EmbeddedEngine,
}


def get_engine(name: str = "auto") -> Engine:
    """The engine of that name, or under ``"auto"`` CmdStan where there is one.

    Raises
    ------
    InputError
        If the name is none of ``auto``, ``cmdstan`` and ``embedded``.
    EngineError
        If the engine is not installed; the message says how to get it.
    """
    if name == "auto":
        for kind in ENGINES.values():
            if kind.missing() is None:
                return kind()
        reasons = "; ".join(f"{key}: {kind.missing()}" for key, kind in ENGINES.items())
        raise EngineError(f"no engine can run here. {reasons}")
    if name not in ENGINES:
        raise InputError(f'engine must be "auto", "cmdstan" or "embedded", got {name!r}')
    missing = ENGINES[name].missing()
    if missing is not None:
        raise EngineError(f"the {name} engine can't run here: {missing}")
    return ENGINES[name]()
