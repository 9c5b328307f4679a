"""Engines that draw from a posterior, behind one small interface: two run Stan, one needs none."""

from __future__ import annotations

from dsstan.core.errors import EngineError, InputError
from dsstan.core.spelling import spelled
from dsstan.engines.base import SAMPLER_COLUMNS, Draws, Engine, SamplerSettings
from dsstan.engines.cmdstan import CmdStanEngine
from dsstan.engines.direct import DirectEngine
from dsstan.engines.embedded import EmbeddedEngine

__all__ = [
    "SAMPLER_COLUMNS",
    "CmdStanEngine",
    "DirectEngine",
    "Draws",
    "EmbeddedEngine",
    "Engine",
    "SamplerSettings",
    "gaussian_engine",
    "get_engine",
    "refuse_ridge",
    "slow_design",
]

STAN_ENGINES: dict[str, type[CmdStanEngine | EmbeddedEngine]] = {
    "cmdstan": CmdStanEngine,
    "embedded": EmbeddedEngine,
}
ENGINES: dict[str, type[CmdStanEngine | EmbeddedEngine | DirectEngine]] = {
    **STAN_ENGINES,
    "direct": DirectEngine,
}


WIDE = 20
"""Columns of X beyond which ``"auto"`` draws directly from a Gaussian fit's posterior: a step of
Stan's sampler interpolates (P + 1)(P + 2) / 2 statistics, and so takes minutes in all."""


def gaussian_engine(name: str, program: str, terms: int) -> Engine:
    """The engine of a Gaussian fit: :func:`get_engine`, or under ``"auto"`` the direct one for a
    design of many columns, if the program draws from a surface.
    """
    wide = name == "auto" and program == "surface" and terms > WIDE
    return get_engine("direct" if wide else name)


STATISTIC_SECONDS = 9e-5
"""Seconds that an iteration of one chain takes for each of those statistics, measured at 30 columns
on one core. The number of records does not enter: the surface is computed once."""


def slow_design(
    engine: Engine, program: str, terms: int, settings: SamplerSettings | None = None
) -> str | None:
    """What to know before an engine samples a design of many columns; None where it is fast."""
    if engine.name == "direct" or program != "surface" or terms <= WIDE:
        return None
    how = settings or SamplerSettings()
    iterations = how.chains * (how.warmup + how.samples)
    minutes = STATISTIC_SECONDS * iterations * (terms + 1) * (terms + 2) / 2 / 60
    return (
        f"the formula gives {terms} columns, and of more than {WIDE} Stan's sampler takes about "
        f"{max(1, round(minutes))} min of computing for a fit, of which a release has two: "
        f"{spelled('engine', 'direct')} draws from the same posterior in seconds. Fewer columns, "
        "such as levels with few records pooled, are faster with either"
    )


RIDGE = 5
"""Records for each column of a wide design below which Stan's sampler takes hours. Of 51 columns
and 80 records 0.85 s an iteration were measured, seven times what the statistics cost."""


def refuse_ridge(engine: Engine, program: str, terms: int, records: int) -> None:
    """Refuse a wide design of few records, for which an engine would sample for hours.

    Raises InputError if it is one.
    """
    if slow_design(engine, program, terms) is None or records >= RIDGE * terms:
        return
    raise InputError(
        f"the formula gives {terms} columns for {records} records, which hardly tell them apart, "
        f"and Stan's sampler would take hours: {spelled('engine', 'direct')} draws from the same "
        "posterior in seconds. Or pool levels that have few records, or leave the category out of "
        "the formula, since the spatial effect knows the place"
    )


def check_name(name: str) -> None:
    """Refuse an engine that there is not; raises InputError."""
    if name != "auto" and name not in ENGINES:
        raise InputError(f'engine must be "auto", "cmdstan", "embedded" or "direct", got {name!r}')


def get_engine(name: str = "auto") -> Engine:
    """The engine of that name, or under ``"auto"`` CmdStan where there is one.

    Raises
    ------
    InputError
        If the name is none of ``auto``, ``cmdstan``, ``embedded`` and ``direct``.
    EngineError
        If the engine is not installed; the message says how to get it.
    """
    if name == "auto":
        for kind in STAN_ENGINES.values():
            if kind.missing() is None:
                return kind()
        reasons = "; ".join(f"{key}: {kind.missing()}" for key, kind in STAN_ENGINES.items())
        raise EngineError(f"no engine can run here. {reasons}")
    check_name(name)
    missing = ENGINES[name].missing()
    if missing is not None:
        raise EngineError(f"the {name} engine can't run here: {missing}")
    return ENGINES[name]()
