"""Build a CMDSTAN folder from a PyPI wheel, for machines that cannot reach GitHub.

Run ``python tests/cmdstan_home/build.py`` and set ``CMDSTAN`` to the path on
the last line of its output, or call :func:`ensure` from Python. ``README.md``
says what the folder can do.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
WHEEL_VARIABLE = "DSSTAN_HTTPSTAN_WHEEL"
WHEEL_VERSION = "4.17.0"
# The wheel of CPython 3.12 for each machine: unpacked, never imported, so that
# the Python that runs this file may be another.
WHEEL_SHA256 = {
    "x86_64": "7f73e29a415718ddc45e4703c0253a9d4adc6a21aa7110ccf36821a0f94202cd",
}
MARKER = "ok"


class BuildError(RuntimeError):
    """The folder cannot be built; the message says what to do."""


def say(message: str) -> None:
    """Tell the user something without disturbing the path on stdout."""
    print(f"cmdstan_home: {message}", file=sys.stderr, flush=True)


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sources() -> list[Path]:
    """Files of this folder that go into the build, in a fixed order."""
    return [HERE / "makefile", *sorted((HERE / "cli").glob("*.?pp"))]


def compiler() -> str:
    """First line of ``g++ --version``.

    Raises
    ------
    BuildError
        If g++ or make is missing.
    """
    for tool in ("g++", os.environ.get("MAKE", "make")):
        if shutil.which(tool) is None:
            raise BuildError(
                f"{tool} is needed to compile Stan programs and was not found on "
                "PATH. On Debian or Ubuntu: apt-get install build-essential"
            )
    done = subprocess.run(["g++", "--version"], capture_output=True, text=True)
    return done.stdout.partition("\n")[0]


def fingerprint(wheel: Path | None = None) -> str:
    """Hash of everything that decides what the folder holds.

    Parameters
    ----------
    wheel
        The wheel to be unpacked; only looked at on a machine for which no
        checksum is pinned.

    Returns
    -------
    str
        Twelve hexadecimal digits.
    """
    machine = platform.machine()
    pinned = WHEEL_SHA256.get(machine)
    if pinned is None:
        pinned = "unpinned" if wheel is None else sha256(wheel)
    digest = hashlib.sha256()
    for part in (machine, pinned, compiler()):
        digest.update(part.encode() + b"\0")
    for path in sources():
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def default_destination(key: str) -> Path:
    """Folder for this key in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification says to ignore a relative path.
    root = Path(cache) if os.path.isabs(cache) else Path.home() / ".cache"
    return root / "dsstan" / f"cmdstan-home-{key}"


def download(folder: Path) -> Path:
    """Fetch the wheel with pip into a folder.

    Raises
    ------
    BuildError
        If pip is missing or finds no wheel for this machine.
    """
    say(f"downloading httpstan {WHEEL_VERSION}")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--python-version", "3.12"]
    command += ["--platform", f"manylinux2014_{platform.machine()}"]
    command += ["--dest", str(folder), f"httpstan=={WHEEL_VERSION}"]
    done = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("httpstan-*.whl"))
    if done.returncode != 0 or not wheels:
        raise BuildError(
            f"pip could not download httpstan {WHEEL_VERSION} for "
            f"{platform.machine()}; pass --wheel FILE or set {WHEEL_VARIABLE}.\n"
            + done.stderr.strip()
        )
    return wheels[0]


def check_wheel(wheel: Path) -> None:
    """Refuse a wheel that is not the one this folder was written for.

    Raises
    ------
    BuildError
        If the file is missing, is for another machine or has another checksum.
    """
    machine = platform.machine()
    if not wheel.is_file():
        raise BuildError(f"there is no wheel {wheel}")
    if not wheel.name.endswith(f"_{machine}.whl"):
        raise BuildError(f"{wheel.name} is not a wheel for {machine}")
    expected = WHEEL_SHA256.get(machine)
    if expected is None:
        say(f"no checksum is pinned for {machine}; accepting {wheel.name}")
    elif (found := sha256(wheel)) != expected:
        raise BuildError(
            f"{wheel} has SHA-256 {found}, expected {expected} "
            f"(httpstan {WHEEL_VERSION}, CPython 3.12)"
        )


def unpack(wheel: Path, home: Path) -> None:
    """Put stanc, the headers, the libraries and the licence where make looks.

    Raises
    ------
    BuildError
        If the wheel lacks one of them.
    """
    wanted = {
        "httpstan/include/": "include/",
        "httpstan/lib/": "lib/",
        "httpstan/stanc": "bin/stanc",
        f"httpstan-{WHEEL_VERSION}.dist-info/LICENSE": "licences/httpstan",
    }
    found = set()
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            if member.endswith("/") or ".." in member.split("/"):
                continue
            for prefix, place in wanted.items():
                if member.startswith(prefix):
                    target = home / (place + member.removeprefix(prefix))
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(archive.read(member))
                    found.add(prefix)
    if missing := wanted.keys() - found:
        raise BuildError(f"{wheel.name} holds no {', '.join(sorted(missing))}")
    (home / "bin" / "stanc").chmod(0o755)


def compile_main(home: Path) -> None:
    """Compile the command line and the precompiled header.

    Raises
    ------
    BuildError
        With the end of the compiler's output.
    """
    # Each job needs up to 2 GB; a make around this one must not interfere.
    jobs = min(4, len(os.sched_getaffinity(0)))
    outer = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    environment = {k: v for k, v in os.environ.items() if k not in outer}
    say(f"compiling with {jobs} jobs (about two minutes on two idle cores)")
    start = time.monotonic()
    done = subprocess.run(
        [os.environ.get("MAKE", "make"), f"-j{jobs}", "main"],
        cwd=home,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise BuildError("make failed:\n" + done.stdout[-3000:])
    say(f"compiled in {time.monotonic() - start:.0f} s")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes; the operating system drops it on a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another process that builds the same folder")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_built(home: Path, key: str) -> bool:
    """Whether a folder holds a finished build of this key."""
    marker = home / MARKER
    return marker.is_file() and marker.read_text() == key


def build(home: Path, key: str, wheel: Path | None) -> None:
    """Build beside the destination and move the result into place.

    Raises
    ------
    BuildError
        If the destination holds something that this program did not make.
    """
    ours = (home / MARKER).is_file()
    if home.exists() and not ours and (not home.is_dir() or any(home.iterdir())):
        raise BuildError(f"{home} exists and was not built by this program")
    with tempfile.TemporaryDirectory(
        prefix=f".{home.name}-", dir=home.parent, ignore_cleanup_errors=True
    ) as scratch:
        fresh = Path(scratch) / "home"
        fresh.mkdir()
        if wheel is None:
            wheel = download(Path(scratch))
            check_wheel(wheel)
        unpack(wheel, fresh)
        (fresh / "cli").mkdir()
        for path in sources():
            shutil.copyfile(path, fresh / path.relative_to(HERE))
        compile_main(fresh)
        (fresh / MARKER).write_text(key)
        if home.exists():
            home.rename(Path(scratch) / "stale")
        fresh.rename(home)


def ensure(dest: Path | None = None, wheel: Path | None = None) -> Path:
    """Build the folder unless it is there already.

    Parameters
    ----------
    dest
        Where to build; by default a folder of the user's cache, named by the
        hash of what it is built from.
    wheel
        The wheel to unpack; by default the file named by the environment
        variable ``DSSTAN_HTTPSTAN_WHEEL``, else pip downloads it.

    Returns
    -------
    Path
        The folder, to be used as ``CMDSTAN``.

    Raises
    ------
    BuildError
        If it cannot be built; the message says what is missing.
    """
    if sys.platform != "linux":
        raise BuildError(f"only Linux is supported, this is {sys.platform}")
    if wheel is None and os.environ.get(WHEEL_VARIABLE):
        wheel = Path(os.environ[WHEEL_VARIABLE])
    if wheel is not None:
        check_wheel(wheel)
    key = fingerprint(wheel)
    home = (default_destination(key) if dest is None else dest).resolve()
    if not is_built(home, key):
        with locked(home.parent / f"{home.name}.lock"):
            if not is_built(home, key):
                build(home, key, wheel)
    return home


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the last line of stdout is the folder."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--dest", type=Path, help="folder to build")
    parser.add_argument("--wheel", type=Path, help="httpstan wheel to unpack")
    options = parser.parse_args(arguments)
    try:
        home = ensure(options.dest, options.wheel)
    except BuildError as error:
        say(f"error: {error}")
        return 1
    print(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
