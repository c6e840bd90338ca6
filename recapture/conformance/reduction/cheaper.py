"""Cheaper compilers that show the same fault, and the stage that this points to.

What goes wrong in Dynamo goes wrong without Inductor, too. A program is reduced with the cheapest of these compilers
that shows its fault, and the result is checked with the cell's own compiler.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from recapture.declare.compiler import Compiler

__all__ = ["BACKENDS", "CheaperCompiler", "cheaper_than", "torch_compile_call", "write_cheaper"]

BACKENDS = {
    "eager": "Dynamo",
    "aot_eager": "AOTAutograd",
    "aot_eager_decomp_partition": "decompositions",
}
"""Backends of `torch.compile` that generate no code, cheapest first, and the stage that each adds."""

EXPORTS = {
    "aoti": (("export:nonstrict", "export"), "AOTInductor"),
    "aoti:checked": (("export:nonstrict", "export"), "AOTInductor"),
    "aoti:dynamic": (("export:dynamic",), "AOTInductor"),
    "onnx": (("export:nonstrict", "export"), "the ONNX exporter"),
}
"""Compilers that begin with an export, the exports they may begin with, and the stage that is theirs alone."""

LAST = "Inductor"

FILE = "backend"
"""Name of the file with the compilers of this module."""


class CheaperCompiler(NamedTuple):
    """A cheaper compiler: its name, the stage at fault if it shows the fault, and whether it ships with recapture."""

    name: str
    stage: str
    ships: bool


def cheaper_than(compiler: Compiler) -> tuple[list[CheaperCompiler], str | None]:
    """Return the cheaper compilers of one compiler, cheapest first, and the stage at fault if none shows the fault.

    Nothing is known about a compiler that is neither a call of `torch.compile` without a backend nor begins with an
    export.
    """
    if compiler.name in EXPORTS:
        names, stage = EXPORTS[compiler.name]
        return [CheaperCompiler(name, "export", ships=True) for name in names], stage
    if torch_compile_call(compiler) is None:
        return [], None
    return [CheaperCompiler(f"{FILE}:{name}", stage, ships=False) for name, stage in BACKENDS.items()], LAST


def write_cheaper(compiler: Compiler, path: Path) -> None:
    """Write the file that declares the cheaper compilers of a call of `torch.compile`."""
    call = torch_compile_call(compiler)
    if call is None:
        return
    kept = [ast.unparse(one) for one in call.keywords if one.arg not in ("mode", "options")]
    lines = ["from recapture.declare.compiler import compiler", ""]
    for backend in BACKENDS:
        options = ", ".join(["fn", *kept, f"backend={backend!r}"])
        lines += [
            "",
            f"@compiler({f'{FILE}:{backend}'!r}, uses_dynamo=True)",
            f"def {backend}_backend(fn, example):",
            "    import torch",
            "",
            f"    return torch.compile({options})",
            "",
        ]
    path.write_text("\n".join(lines), encoding="utf-8")


def torch_compile_call(compiler: Compiler) -> ast.Call | None:
    """Return a compiler's only call of `torch.compile`, if it names no backend and uses nothing but constants."""
    try:
        tree = ast.parse(compiler.to_source())
    except (KeyError, OSError, SyntaxError):  # its source cannot be read
        return None
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and ast.unparse(one.func) == "torch.compile"]
    if len(calls) != 1 or len(calls[0].args) != 1:
        return None
    plain = all(isinstance(one.value, ast.Constant) and one.arg not in (None, "backend") for one in calls[0].keywords)
    return calls[0] if plain else None
