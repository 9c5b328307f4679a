"""The child process of the embedded engine: one request in, one answer out.

Reads a JSON request from standard input and writes a NumPy archive to standard
output. Progress and reasons go to standard error. Runs in the main thread, as
the library needs.
"""

from __future__ import annotations

import ctypes
import io
import json
import os
import re
import signal
import sys
import threading
import time
from typing import Any

import numpy as np

_PR_SET_PDEATHSIG = 1
"""Of ``linux/prctl.h``."""

_NUMBER = re.compile(r"(?<![\w\[])[-+]?\d+(\.\d+)?([eE][-+]?\d+)?(?![\w\]])")


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what the request asks."""
    import stanli

    model = stanli.Model(
        stan_code=request["source"], data=request["data"], include_paths=[request["include"]]
    )
    if request["task"] == "log_density":
        values = [model.log_prob_grad(model.unconstrain(point))[0] for point in request["points"]]
        return {"log_density": np.array(values)}
    fit = model.sample(
        chains=request["chains"],
        warmup=request["warmup"],
        samples=request["samples"],
        delta=request["delta"],
        max_depth=request["max_depth"],
        metric=request["metric"],
        seed=request["seed"],
        inits=np.stack([model.unconstrain(init) for init in request["inits"]]),
        refresh=max(1, (request["warmup"] + request["samples"]) // 20),
    )
    columns = [
        stanli.SAMPLER_COLUMNS.index(name)
        for name in ("accept_stat__", "treedepth__", "divergent__", "energy__")
    ]
    return {
        "names": np.array(fit.names),
        "values": fit.draws(),
        "sampler": np.ascontiguousarray(fit.sampler_stats[:, :, columns]),
    }


def _end_with_parent() -> None:
    """Have this process end when the one that asked is gone: by the kernel, or by a watch."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)  # gone meanwhile
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> int:
    """Answer one request; 1 where it can't be done."""
    _end_with_parent()
    answer_to = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    request = json.loads(sys.stdin.buffer.read())
    try:
        arrays = _answer(request)
    except (RuntimeError, ValueError) as error:
        # Stan's messages may quote a value of the data: numbers are masked.
        text = " ".join(_NUMBER.sub("#", str(error)).split())
        print(f"dsstan: {text}", file=sys.stderr, flush=True)
        return 1
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    answer_to.write(buffer.getvalue())
    answer_to.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
