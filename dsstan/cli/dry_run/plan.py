"""What a run would do, and how it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dsstan.cli.dry_run.estimate import Estimate
from dsstan.cli.screens import out, say
from dsstan.cli.session import document, emit
from dsstan.risk.places.result import LONELY

METHOD = (
    "An estimate: posteriors drawn directly, some iterations of the sampler, and one surface node "
    "and copy of this table, timed on this machine and scaled. Other work on the machine adds to "
    "it, and so do pages, pictures and the first compilation under CmdStan."
)


@dataclass(frozen=True)
class Plan:
    """What a run would do. Confidential: it says how many records are flagged."""

    what: dict[str, Any]
    estimate: Estimate | None
    reason: str | None
    warnings: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    """Why DISCLOSURE will be MISSED."""

    def show(self, command: str, *, as_json: bool) -> None:
        """Print the plan, or write it as one JSON document."""
        if as_json:
            emit(
                document(
                    command,
                    confidential=True,
                    dry_run=True,
                    plan=self.what,
                    estimate=None
                    if self.estimate is None
                    else {
                        "seconds": {**self.estimate.seconds, "total": self.estimate.total},
                        "peak_mib": self.estimate.peak_mib,
                        "method": METHOD,
                    },
                    no_estimate=self.reason,
                    warnings=list(self.warnings),
                    failures=list(self.failures),
                    missed=list(self.missed),
                )
            )
            return
        if self.failures:
            say("The run would fail its verdict; nothing was written.", "red")
        elif self.missed:
            say("The run would end in DISCLOSURE: MISSED; nothing was written.", "red")
        elif self.warnings:
            say("The run would warn; nothing was written.", "yellow")
        else:
            say("All that can be checked before sampling is in order; nothing was written.")
        for line in (*self.failures, *self.missed, *self.warnings):
            say(f"  {line}", "yellow")
        width = max(len(key) for key in self.what)
        for key, value in self.what.items():
            if isinstance(value, Mapping):
                _show_columns(value)
            elif key == "thresholds":
                words = ", ".join(f"{one['threshold']:g} flags {one['flagged']}" for one in value)
                if words:  # none where every record shares its place
                    say(f"  {'other thresholds':<{width}}  {words}, in {self.what['unit']}s")
            elif value is not None and key not in ("programs", "unit"):  # for scripts
                more = {"cell_width": f" {self.what.get('unit')}s", "lonely": f" ({LONELY})"}.get(
                    key, ""
                )
                say(f"  {key.replace('_', ' '):<{width}}  {_words(value)}{more}")
        if self.estimate is None:
            say(f"Time and memory can't be estimated: {self.reason}", "yellow")
            return
        stages = ", ".join(f"{name} {_time(s)}" for name, s in self.estimate.seconds.items())
        say(f"About {_time(self.estimate.total)} ({stages})")
        say(f"About {self.estimate.peak_mib:.0f} MiB at the peak, in the larger process")
        out.print(METHOD, style="dim")


def _show_columns(columns: Mapping[str, Mapping[str, Any]]) -> None:
    """Print each column with its role as it is guessed, and whether it goes out."""
    say("Columns, with what each looks like; those that stay go out if publish names them:")
    width = max(map(len, columns))
    for name, one in columns.items():
        goes = "goes out" if one["published"] else "stays   "
        if one["role"] == "response":
            goes, one = "replaced", {"role": "response: synthetic values go out in its place"}
        say(f"  {name:<{width}}  {goes}  {one['role']}")


def _words(value: Any) -> str:
    """A value of the plan for a reader."""
    if isinstance(value, list | tuple):
        return ", ".join(map(_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _time(seconds: float) -> str:
    """Seconds to two digits, minutes and hours where there are many."""
    if seconds < 120:
        return f"{float(f'{seconds:.2g}'):g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
