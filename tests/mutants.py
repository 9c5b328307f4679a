"""Changes one place of the code at a time and asks whether any test notices.

``python tests/mutants.py 100 --seed 1`` draws 100 places of ``table/``, ``risk/`` and ``release/``
(a comparison, a sign, a constant, a condition), makes a copy of the tree for each, runs the tests
that name the changed module and then those of its room until one fails, and prints what survived.
A mutant that survives is either a test that is missing or a change that changes nothing.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("table", "risk", "release")

COMPARED = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt},
    **{ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In},
    **{ast.Is: ast.IsNot, ast.IsNot: ast.Is},
}
COMPUTED = {
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult},
    **{ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.Pow: ast.Mult},
}
CALLED = {
    **{"min": "max", "max": "min", "minimum": "maximum", "maximum": "minimum"},
    **{"argmin": "argmax", "argmax": "argmin", "any": "all", "all": "any"},
    **{"floor": "ceil", "ceil": "floor", "append": "remove", "mean": "median", "fmax": "fmin"},
}


@dataclass(frozen=True)
class Mutant:
    """One change: the file, the line, what stood there and what stands there now."""

    path: Path
    line: int
    before: str
    after: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"


def changed(node: ast.AST) -> ast.AST | None:
    """The node with one change, or None where there is nothing to change."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op, *_]) if type(op) in COMPARED:
            new.ops[0] = COMPARED[type(op)]()
        case ast.BinOp(op=op) if type(op) in COMPUTED:
            new.op = COMPUTED[type(op)]()
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            return new.operand
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value) | float(value)):
            new.value = value + 1
        case ast.Attribute(attr=name) if name in CALLED:
            new.attr = CALLED[name]
        case ast.Call(func=ast.Name(id=name)) if name in CALLED:
            new.func.id = CALLED[name]
        case ast.IfExp():
            new.body, new.orelse = new.orelse, new.body
        case _:
            return None
    return new


class Replace(ast.NodeTransformer):
    """Puts another node in the place of one."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self.new if node is self.old else super().visit(node)


def places(tree: ast.Module) -> Iterator[ast.AST]:
    """Nodes that run: none of an annotation, a default of a type, or ``if TYPE_CHECKING``."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "type_params"):
                continue
            waiting += [
                one
                for one in (value if isinstance(value, list) else [value])
                if isinstance(one, ast.AST)
            ]


def sites() -> list[tuple[Path, int]]:
    """Every place of the three rooms that can be changed: its file, and its number there."""
    found = []
    for room in ROOMS:
        for path in sorted((ROOT / "dsstan" / room).rglob("*.py")):
            nodes = changeable(ast.parse(path.read_text(encoding="utf-8")))
            found += [(path.relative_to(ROOT), number) for number in range(len(nodes))]
    return found


def changeable(tree: ast.Module) -> list[ast.expr]:
    """The nodes of a file that can be changed."""
    return [
        node for node in places(tree) if isinstance(node, ast.expr) and changed(node) is not None
    ]


def mutant_at(path: Path, number: int) -> Mutant:
    """The change of one place."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    node = changeable(tree)[number]
    new = changed(node)
    assert new is not None
    before, after = ast.unparse(node), ast.unparse(new)
    return Mutant(path, node.lineno, before, after, ast.unparse(Replace(node, new).visit(tree)))


def tests_of(path: Path) -> list[str]:
    """Test files of a module: by its name or its folder's first, then those that import it, then
    the rest of its room."""
    module, room = ".".join(path.with_suffix("").parts), path.parts[1]

    def nearness(test: Path) -> tuple[bool, ...]:
        inside = test.parts[-2] == room
        named = path.stem in test.stem or (inside and test.stem.removeprefix("test_") in path.stem)
        folder = inside and path.parent.name in test.stem
        return not named, not folder, module not in test.read_text(encoding="utf-8"), not inside

    files = sorted((ROOT / "tests").rglob("test_*.py"), key=nearness)
    return [str(one.relative_to(ROOT)) for one in files if not all(nearness(one))]


def survives(mutant: Mutant, seconds: float, files: int | None) -> tuple[Mutant, str, float]:
    """Whether it does, in a word, and how long it took to know."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        here = Path(folder)
        tracked = subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
        )
        for name in tracked.stdout.decode().split("\0")[:-1]:
            (here / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, here / name)
        (here / mutant.path).write_text(mutant.source, encoding="utf-8")
        run = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
        ]
        env = {**os.environ, "PYTHONPATH": str(here), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                [*run, *tests_of(mutant.path)[:files]],
                cwd=here,
                env=env,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return mutant, "no test failed in time", time.monotonic() - begin
    word = {0: "survived", 1: "caught"}.get(done.returncode, "caught before any test")
    return mutant, word, time.monotonic() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=300.0, help="for one mutant")
    parser.add_argument("--files", type=int, help="of tests at most for one; all by default")
    asked = parser.parse_args()
    every = sites()
    chosen = random.Random(asked.seed).sample(every, asked.count)
    drawn = [mutant_at(path, number) for path, number in chosen]
    print(f"{len(every)} places; {asked.count} drawn with seed {asked.seed}", flush=True)
    words: dict[str, int] = {}
    with concurrent.futures.ThreadPoolExecutor(asked.workers) as pool:
        for one in concurrent.futures.as_completed(
            [pool.submit(survives, mutant, asked.seconds, asked.files) for mutant in drawn]
        ):
            mutant, word, seconds = one.result()
            words[word] = words.get(word, 0) + 1
            print(f"{word} ({seconds:.0f} s): {mutant}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in sorted(words.items())))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
