"""The configurations of a workload: a compiler, a dtype, a memory layout, and static or symbolic sizes."""

from __future__ import annotations

from recapture.base.errors import UsageError, did_you_mean
from recapture.cases.compilers import builtin_compilers
from recapture.cases.workload import DTYPES
from recapture.tools.speed.speedups import EAGER, Configuration

LAYOUTS = ("contiguous", "channels-last")

_ON_CUDA = (
    EAGER,
    "compile",
    "compile:reduce-overhead",
    "compile:max-autotune",
    "compile:max-autotune-no-cudagraphs",
    "jit.trace",
    "jit.trace:frozen",
    "jit.script",
    "jit.script:frozen",
    "fx",
    "aoti",
)

# These two modes differ from others only in CUDA graphs, so they are left out on the CPU.
_CUDA_GRAPHS = frozenset({"compile:reduce-overhead", "compile:max-autotune"})

DEFAULT_COMPILERS = {"cuda": _ON_CUDA, "cpu": tuple(name for name in _ON_CUDA if name not in _CUDA_GRAPHS)}
"""Default compilers, by device."""


def configurations(
    own_dtype: str,
    *,
    own: tuple[str, ...] = (),
    compilers: tuple[str, ...],
    dtypes: tuple[str, ...],
    layouts: tuple[str, ...],
    dynamic: bool,
) -> list[Configuration]:
    """Return the configurations of a workload whose own arithmetic is `own_dtype`.

    Every compiler is combined with every dtype (by default the workload's own) and layout. `own` are the compilers that
    the workload's file declares. `dynamic` requests symbolic sizes from `torch.compile`. Raises UsageError for an
    unknown name.
    """
    known = builtin_compilers()
    for kind, wanted, names in (
        ("compiler", compilers, (*known, *own)),
        ("dtype", dtypes, DTYPES),
        ("layout", layouts, LAYOUTS),
    ):
        for name in wanted:
            if name not in names:
                hint = did_you_mean(name, names) or f"; it is one of {', '.join(names)}"
                raise UsageError(f"unknown {kind} {name!r}{hint}")
    found = [
        Configuration(compiler, dtype, layout, dynamic and compiler.split(":")[0] == "compile")
        for dtype in dtypes or (own_dtype,)
        for layout in layouts or ("contiguous",)
        for compiler in dict.fromkeys(compilers)
    ]
    return list(dict.fromkeys(found))
