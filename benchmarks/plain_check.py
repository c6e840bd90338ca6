"""A plain check of generated programs against eager, with torch alone: it shares no code with the judge.

Each program is run by eager and by what a compiler made of it, on fresh inputs, and `torch.testing.assert_close`
compares results, arguments and gradients with its own tolerances. It sees much less than the judge does; where the two
disagree, one of them is at fault.
"""

from __future__ import annotations

import multiprocessing
import runpy
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SECONDS = 300.0
"""Seconds that the programs of one file may take."""


def capture_compile(backend: str) -> Callable[..., Any]:
    """Return a function that compiles with a backend of Dynamo."""

    def capture(function: Any, _example: Any) -> Any:
        import torch

        torch.compiler.reset()
        return torch.compile(function, backend=backend)

    return capture


def capture_export(function: Any, example: Any) -> Any:
    """Export a function as a module that calls it."""
    import torch

    class Calling(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *arguments: Any) -> Any:
            return function(*arguments)

    return torch.export.export(Calling(), example).module()


def capture_make_fx(function: Any, example: Any) -> Any:
    """Trace a function to ATen operators."""
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(function)(*example)


def capture_trace(function: Any, example: Any) -> Any:
    """Trace a function to TorchScript."""
    import torch

    return torch.jit.trace(function, example)


CAPTURES: dict[str, Callable[..., Any]] = {
    "compile:aot_eager": capture_compile("aot_eager"),
    "compile:eager": capture_compile("eager"),
    "export": capture_export,
    "make_fx": capture_make_fx,
    "jit.trace": capture_trace,
}
"""What each compiler does, by its name."""


def outcome(declared: Any, capture: Callable[..., Any]) -> str:
    """Return ``pass``, ``wrong: …`` or ``error: …`` of one program."""
    import torch

    inputs = [make for _, make in declared.inputs()]
    torch.manual_seed(1)
    try:
        captured = capture(declared.target, inputs[0]())
    except Exception as error:
        return f"error: {type(error).__name__}"
    for make in inputs:
        expected = _called(declared.target, make())
        actual = _called(captured, make())
        if isinstance(actual, Exception):
            if not isinstance(expected, Exception):
                return f"error: {type(actual).__name__}"
            continue
        if isinstance(expected, Exception):
            return "wrong: eager raises"
        why = _unlike(actual, expected)
        if why is not None:
            return f"wrong: {why}"
    return "pass"


def _called(function: Any, arguments: tuple[Any, ...]) -> Any:
    """Return the result, the arguments after the call, and their gradients; or the exception."""
    import torch
    from torch.utils import _pytree as pytree

    torch.manual_seed(0)
    try:
        result = function(*arguments)
        leaves = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if leaves:
            torch.autograd.backward(leaves, [torch.ones_like(leaf) for leaf in leaves])
    except Exception as error:
        return error
    gradients = [argument.grad if isinstance(argument, torch.Tensor) else None for argument in arguments]
    return result, arguments, gradients


def _unlike(actual: Any, expected: Any) -> str | None:
    """Return in what two calls differ, in a word; None if they agree."""
    import torch

    if type(actual[0]) is not type(expected[0]):
        return "type"
    for name, left, right in zip(("result", "arguments", "gradients"), actual, expected, strict=True):
        if name == "gradients" and [part is None for part in left] != [part is None for part in right]:
            return "gradients"
        try:
            torch.testing.assert_close(
                _comparable(left), _comparable(right), equal_nan=True, check_stride=False, check_device=True
            )
        except AssertionError:
            return name
    return None


def _comparable(value: Any) -> Any:
    """Return the tensors and numbers of a value in a flat list, detached; what else it holds, as text."""
    import torch
    from torch.utils import _pytree as pytree

    flat = pytree.tree_leaves(value)
    detached = [leaf.detach() if isinstance(leaf, torch.Tensor) else leaf for leaf in flat]
    return [leaf for leaf in detached if isinstance(leaf, (torch.Tensor, int, float, complex))]


def check_file(path: Path, compilers: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    """Yield program, compiler and outcome for all programs of a file, in this process."""
    warnings.simplefilter("ignore")
    namespace = runpy.run_path(str(path), run_name="generated")
    for declared in namespace["__recapture_cases__"]:
        for compiler in compilers:
            yield declared.name, compiler, outcome(declared, CAPTURES[compiler])


def warm_up() -> None:
    """Use every compiler once, so that the processes that are forked need not import what they use."""
    import torch

    for capture in CAPTURES.values():
        capture(torch.neg, (torch.ones(2),))(torch.ones(2))


def _child(path: Path, compilers: list[str], connection: Connection) -> None:
    import logging

    logging.disable(logging.ERROR)
    sys.stderr = sys.stdout = open("/dev/null", "w")  # noqa: SIM115, PTH123 - until the process ends
    for row in check_file(path, compilers):
        connection.send(row)
    connection.close()


def check_isolated(path: Path, compilers: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return the outcomes of a file's programs, which run in a process of their own, by program and compiler.

    Where the process dies or takes too long, the programs after that are missing.
    """
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(path, list(compilers), sending))
    process.start()
    sending.close()
    outcomes = {}
    try:
        while receiving.poll(SECONDS):
            program, compiler, text = receiving.recv()
            outcomes[program, compiler] = text
    except EOFError:
        pass
    process.kill()
    process.join()
    return outcomes
