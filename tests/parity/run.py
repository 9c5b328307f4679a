"""Run every R twin again and rewrite the inputs, the golden files and the table.

``python tests/parity/run.py [topic ...]``. Needs R with the packages that the twins name. The
posteriors, ``posterior_jags`` and ``posterior_gibbs``, take most of the time.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

if __package__ in (None, ""):
    sys.path[:0] = [str(Path(__file__).resolve().parents[k]) for k in (1, 2)]

from parity import make_inputs, table
from parity.golden import SAN_FRANCISCO, TOPICS, run_r, san_francisco_file
from parity.posterior import SYSTEMS


def main(topics: list[str]) -> int:
    """Rewrite everything; 1 where R is missing or a topic is unknown."""
    rscript = shutil.which("Rscript")
    jags = ("bracketed_jags", "multivariate_jags", "counts_jags")
    everything = (*TOPICS, *SYSTEMS, *jags)
    unknown = set(topics) - set(everything)
    if rscript is None or unknown:
        print("Rscript is missing" if rscript is None else f"no such topic: {sorted(unknown)}")
        return 1
    make_inputs.main()
    for topic in topics or everything:
        if topic in (SAN_FRANCISCO, *SYSTEMS) and san_francisco_file() is None:
            print(f"{topic}: left as it is, the file is missing (DSSTAN_DATA)")
            continue
        begin = time.perf_counter()
        run_r(rscript, topic)
        print(f"{topic}: {time.perf_counter() - begin:.1f} s")
    table.main([])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
