"""What the captures and calls of a check cost in torch alone.

`python -m benchmarks.plain_calls CASE.py DERIVING COMPILER…`: CASE.py is what `recapture check … --save CASE.py`
writes, and DERIVING the number of calls of eager that derived its inputs. For each compiler, eager is called twice on
every input and twice more on the example, as a cell does, and the captured callable once on every input. Nothing is
observed or compared. CPU seconds are printed, without the import of torch.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from recapture.cases.case import CASES_ATTRIBUTE, Case
from recapture.cases.collection import execute
from recapture.cases.compilers import builtin_compilers
from recapture.judge.steps import held_out_shapes
from recapture.torch_api.compat import allow_recompilations, reset_dynamo


def main(path: Path, deriving: int, compilers: list[str]) -> None:
    """Print the CPU seconds of each compiler, and of all."""
    warnings.simplefilter("ignore")
    began = time.process_time()
    cases: list[Case] = getattr(execute("check", path), CASES_ATTRIBUTE)
    case = cases[0]
    inputs = [make for _, make in case.inputs()]
    calls = deriving + sum(_calls(name, case, inputs) for name in compilers)
    target = case.target() if case.is_module else case.target
    for _ in range(deriving):
        _call(target, inputs[0])
    print(f"{path.stem}: {time.process_time() - began:.1f} s, {calls} calls")


def _calls(name: str, case: Case, inputs: list[Callable[[], tuple[Any, ...]]]) -> int:
    """Call eager and one captured callable, print the CPU seconds, and return the number of calls."""
    began = time.process_time()
    compiler = builtin_compilers()[name]
    target: Any = case.target() if case.is_module else case.target
    of_eager = [*inputs, *inputs, inputs[0], inputs[0]]
    for make in of_eager:
        _call(target, make)
    reset_dynamo()
    allow_recompilations(len(inputs) + 1)
    options = {"held_out": held_out_shapes(case)} if compiler.sees_held_out else {}
    captured = None
    with suppress(Exception):
        captured = compiler.function(target, inputs[0](), **options)
    for make in inputs if captured is not None else ():
        _call(captured, make)
    print(f"{name}: {time.process_time() - began:.1f} s")
    return len(of_eager) + (len(inputs) if captured is not None else 0)


def _call(function: Any, make: Callable[[], tuple[Any, ...]]) -> None:
    with suppress(Exception):
        function(*make())


if __name__ == "__main__":
    torch.manual_seed(0)
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
