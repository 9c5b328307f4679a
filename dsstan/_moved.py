"""Where modules stood before they moved into rooms: old paths work for one release, with a warning.

This is the only place that knows them. ``dsstan.large`` is the folder that many of them were in.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

MOVED = {
    "assessment": "risk.assessment",
    "attacker": "risk.intruder.attacker covariance.copy_law covariance.exact",
    "attribute": "risk.keys.attribute",
    "baselines": "comparison.baselines comparison.simple_methods",
    "cells": "table.text.cells",
    "chain": "copies.chain risk.joint_disclosure",
    "conditions": "models.checks.conditions release.conditions",
    "continuous": "models.flagging.continuous_weights",
    "core.workspace": "core.files.workspace",
    "correlation": "covariance.correlation",
    "datasets": "table.datasets",
    "demo": "cli.examples",
    "diagnose": "models.checks.verdict models.checks.diagnostics",
    "disclosure": "risk.disclosure",
    "doctor": "cli.doctor",
    "eigenbasis": "covariance.eigenbasis covariance.base",
    "errors": "core.errors",
    "exchange": "release.exchange",
    "fit": "models.fit models.result covariance.protection",
    "formula": "table.formulas.formula table.formulas.parsing",
    "frontier": "comparison.frontier",
    "geo": "table.geo",
    "identification": "risk.keys.identification",
    "imputation": "copies.imputation",
    "intruders": "risk.intruder.weaker",
    "job": "cli.job",
    "large.approximations": "covariance.approximations covariance.base covariance.exact "
    "covariance.process.knots covariance.process.approximation covariance.vecchia.approximation",
    "large.distributed": "core.distributed",
    "large.exposure": "covariance.vecchia.exposure",
    "large.knots": "covariance.process.knots",
    "large.kriging": "covariance.vecchia.kriging",
    "large.latent": "covariance.vecchia.latent",
    "large.neighbours": "covariance.vecchia.neighbours",
    "large.parquet": "table.parquet",
    "large.preconditioner": "covariance.vecchia.preconditioner",
    "large.predictive_process": "covariance.process.statistics covariance.process.latent "
    "covariance.process.knots",
    "large.spread": "covariance.vecchia.spread",
    "large.strata": "copies.strata",
    "large.vecchia": "covariance.vecchia.statistics",
    "large.window": "covariance.window",
    "latent": "covariance.latent covariance.base models.posterior models.effect_map copies.result "
    "table.problem",
    "leave_one_out": "risk.intruder.leave_one_out covariance.copy_law covariance.eigenbasis",
    "models.bracket_cost": "risk.bracket_cost",
    "models.bracketed": "models.brackets.fit",
    "models.group_surface": "models.groups.effect_map",
    "models.multivariate": "models.groups.fit models.groups.result",
    "order": "table.order_leaks",
    "overlap": "analysis.overlap",
    "plots": "release.pictures.plots",
    "pmse": "analysis.pmse",
    "pooling": "analysis.pooling analysis.joint_test",
    "predictive": "models.predictive",
    "priors": "models.priors",
    "problem": "table.problem table.prepare",
    "programs": "engines.programs",
    "progress": "core.progress",
    "protect": "copies.protect",
    "public": "release.public copies.published table.order_leaks",
    "reading": "release.reading",
    "report": "release.report",
    "report.page": "release.report.page",
    "risk.attacker": "risk.intruder.attacker",
    "risk.attribute": "risk.keys.attribute",
    "risk.exact": "risk.intruder.exact",
    "risk.identification": "risk.keys.identification",
    "risk.intruders": "risk.intruder.weaker",
    "risk.key_measures": "risk.keys.key_measures",
    "risk.leave_one_out": "risk.intruder.leave_one_out",
    "risk.population": "risk.keys.population",
    "rounding": "table.rounding",
    "seeds": "core.seeds",
    "spatial_estimators": "analysis.spatial_estimators",
    "spatial_statistics": "analysis.spatial_statistics",
    "spatial_surfaces": "analysis.spatial_surfaces",
    "spatial_utility": "analysis.spatial_utility analysis.spatial_regression",
    "stan_data": "models.stan_data",
    "surface": "covariance.likelihood_surface covariance.surface_statistics covariance.protection "
    "core.chebyshev",
    "synthesis": "copies.synthesis copies.result copies.draw",
    "table.cells": "table.text.cells",
    "table.coordinates": "table.places.coordinates",
    "table.csv": "table.text.csv",
    "table.degrees": "table.places.degrees",
    "table.dialect": "table.text.dialect",
    "table.found_dialect": "table.text.found_dialect",
    "table.heaps": "table.records.heaps",
    "table.parquet_source": "table.formats.parquet_source",
    "table.projections": "table.places.projections",
    "table.structure": "table.records.structure",
    "table.survey_weights": "table.records.survey_weights",
    "table.text_file": "table.text.text_file",
    "targets": "risk.targets",
    "truncation": "models.brackets.truncation",
    "utility": "analysis.utility analysis.combining",
    "weights": "models.weights models.flagging.flags",
    "workspace": "core.files.workspace",
}
"""Old module to the new one, both below ``dsstan``; several where its names were split up."""

RENAMED = {"order": {"gives_away": "ranks_like_response"}}
"""Old names of what a module gives by another name now."""

PACKAGES = {"release": "release.write", "cli": "cli.command_line cli.commands.synthesise"}
"""Rooms that have the name of an old module, with the module that has its names now."""


def moved_name(module: str, name: str) -> Any:
    """A name of an old module, from the first of its new places that has it."""
    old = module.removeprefix("dsstan.")
    asked, name = name, RENAMED.get(old, {}).get(name, name)
    for place in (MOVED.get(old) or PACKAGES.get(old, "")).split():
        found = vars(importlib.import_module(f"dsstan.{place}"))
        # Not what the module only imports: a module of the room may have that name.
        home = f"{getattr(found.get(name), '__module__', '')}."
        elsewhere = not home.startswith(f"dsstan.{place}.")
        imported = isinstance(found.get(name), type | FunctionType) and elsewhere
        if name in found and not imported and not isinstance(found[name], ModuleType):
            warnings.warn(
                f"{asked} of {module} is now {f'{name} ' if name != asked else ''}in "
                f"dsstan.{place}; the old path goes with the next release",
                DeprecationWarning,
                stacklevel=3,
            )
            return found[name]
    raise AttributeError(f"module {module!r} has no attribute {asked!r}")


class OldModule(ModuleType):
    """A module of before: its names come from where they are now."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return moved_name(self.__name__, name)


class _Finder:
    """Finds the modules of before."""

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None = None, target: Any = None) -> Any:
        """A spec for an old path; None for any other."""
        if fullname.removeprefix("dsstan.") not in (*MOVED, "large"):
            return None
        folder = fullname in ("dsstan.large", "dsstan.report")
        return ModuleSpec(fullname, _Finder, is_package=folder)  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> ModuleType:
        """The stand-in for an old module."""
        return OldModule(spec.name)

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Nothing runs: names are looked up when they are asked for."""


class Face(ModuleType):
    """The package ``dsstan``: importing ``dsstan.fit`` leaves the function of that name alone."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, OldModule) and name in self.__all__):
            super().__setattr__(name, value)


def install() -> None:
    """Make the old paths work."""
    sys.modules["dsstan"].__class__ = Face
    sys.meta_path.append(_Finder)
