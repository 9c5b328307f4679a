"""The models that a step of a job may name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from dsstan.copies.option_fields import MODEL, option
from dsstan.copies.options import ReleaseOptions
from dsstan.core.errors import InputError
from dsstan.covariance.protection import protection_of
from dsstan.models.brackets.fit import fit_bracketed
from dsstan.models.brackets.limits import find_brackets
from dsstan.models.counts.fit import CountPriors, fit_counts
from dsstan.models.counts.input import check_counts, read_offset
from dsstan.models.fit import fit
from dsstan.models.groups.fit import fit_multivariate
from dsstan.models.groups.groups import read_groups
from dsstan.models.heaps.fit import fit_heaped
from dsstan.models.held import only_in_fit
from dsstan.models.result import Fit
from dsstan.table.problem import Problem

COUNTS = ("poisson", "negative binomial", "bernoulli")
OUTCOMES = ("gaussian", *COUNTS, "bracketed", "grouped")
"""How the column of a step may be modelled, by the name in a job."""

OF_A_MODEL = {
    "offset": COUNTS,
    "cuts": ("bracketed",),
    "closed": ("bracketed",),
    "likelihood": ("bracketed",),
    "groups": ("grouped",),
}
"""Keys that belong to some models only."""


@dataclass(frozen=True, kw_only=True)
class StepModel:
    """The model of a step, and the options that only some models have.

    Raises
    ------
    InputError
        If there is no such model, it lacks what it needs, or it is given what belongs to another.
    """

    outcome: str = option("gaussian", "How the column is modelled.", MODEL)
    offset: str | None = option(None, "Of a count: column of the exposure.", MODEL)
    cuts: list[float] | None = option(None, "Bracketed: ends of the brackets, ascending.", MODEL)
    closed: str | None = option(
        None, "Bracketed: the end that belongs to it, left or right.", MODEL
    )
    likelihood: str | None = option(None, "Bracketed: plain or truncated.", MODEL)
    groups: str | None = option(None, "Grouped: column of the groups.", MODEL)

    def __post_init__(self) -> None:
        outcome = self.outcome
        if outcome not in OUTCOMES:
            raise InputError(f"outcome must be one of {', '.join(OUTCOMES)}, got {outcome!r}")
        for key, models in OF_A_MODEL.items():
            if getattr(self, key) is not None and outcome not in models:
                raise InputError(
                    f"the key {key!r} belongs to the outcome {' or '.join(map(repr, models))}, "
                    f"and this step has {outcome!r}"
                )
        for outcome_of, key in (("bracketed", "cuts"), ("grouped", "groups")):
            if outcome == outcome_of and getattr(self, key) is None:
                raise InputError(f"the outcome {outcome!r} needs the key {key!r}")

    @property
    def other_columns(self) -> tuple[str, ...]:
        """Columns beside the formula's that the model takes as they are."""
        return tuple(name for name in (self.offset, self.groups) if name is not None)

    @property
    def _of_brackets(self) -> dict[str, Any]:
        given = {"closed": self.closed, "likelihood": self.likelihood}
        return {key: value for key, value in given.items() if value is not None}

    def check_options(self, options: ReleaseOptions) -> None:
        """Refuse a protection that the model does not have."""
        options.refuse_search()
        for name, given in (("heap", options.heap), ("range", options.range)):
            if given is not None and self.outcome != "gaussian":
                raise InputError(
                    f"the key {name!r} belongs to the outcome 'gaussian', and this step has "
                    f"{self.outcome!r}"
                )
        if self.outcome != "gaussian":
            for name in ("time_decay", "group_share"):
                if getattr(options, name) is not None:
                    raise InputError(
                        f"{name} belongs to the Gaussian model, and this step has {self.outcome!r}"
                    )
        if self.outcome in COUNTS:
            CountPriors.beside(options.priors)
            if not protection_of(options.protection).latent:
                raise InputError(
                    f'a count is protected as "paper" does, got {options.protection!r}'
                )

    def check_new_places(self) -> None:
        """Refuse a model whose values are known at the places of the table alone.

        Raises InputError if so.
        """
        if self.outcome in ("gaussian", *COUNTS) and self.offset is None:
            return
        what = f"the outcome {self.outcome!r}" if self.offset is None else "a count with an offset"
        raise InputError(f"{what} can't be drawn at new places: leave it out, or keep the places")

    def check_problem(self, problem: Problem) -> None:
        """Refuse, before any sampling, a table that the model can't take.

        Raises InputError if so; see the fit of the model.
        """
        if self.outcome != "gaussian":
            only_in_fit(problem)
        if self.outcome in COUNTS:
            check_counts(problem, self.outcome)
            read_offset(problem, self.offset, "exposure")
        elif self.outcome == "bracketed":
            find_brackets(problem, self.cuts, **({"closed": self.closed} if self.closed else {}))
        elif self.groups is not None:
            read_groups(problem, self.groups)

    def fit_of(self, problem: Problem, options: ReleaseOptions) -> Callable[..., Fit]:
        """The fit, to which only what sets the two fits of a release apart is not given yet."""
        common = options.fitting
        if self.outcome in COUNTS:
            common["priors"] = CountPriors.beside(options.priors)
            run = partial(fit_counts, problem, self.outcome, offset=self.offset, **common)
            return lambda protection=None, **how: run(**how)
        if self.outcome == "bracketed":
            return partial(fit_bracketed, problem, self.cuts, **self._of_brackets, **common)
        if self.groups is not None:
            return partial(fit_multivariate, problem, self.groups, **common)
        if options.heaped:
            return partial(fit_heaped, problem, options.range, **common)
        return partial(fit, problem, **common)
