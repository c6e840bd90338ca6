"""What each planted fault must show: its verdict, the guilty stage, and the part that a switch tells apart."""

from __future__ import annotations

from typing import NamedTuple

LOWERINGS = "lowerings and generated code"


class Fault(NamedTuple):
    """A planted fault: the cell that has it, and what must be found."""

    cell: str
    verdict: str
    stage: str
    part: str | None
    compiles: bool = True
    """Whether its cell compiles C++."""


FAULTS = (
    # Where the negation is not inlined into the maximum, its result is stored as bytes, which casts it.
    Fault("inductor::of_bytes::neg-without-cast", "error", "inductor", "inlining"),
    Fault("inductor::of_floats::neg-doubled", "wrong", "inductor", LOWERINGS),
    Fault("inductor::of_floats::neg-doubled-in-vectors", "wrong", "inductor", "vectorization"),
    Fault("inductor::of_relu::relu-wrong", "wrong", "inductor", LOWERINGS),
    Fault("inductor::of_relu::relu-does-not-compile", "error", "inductor", LOWERINGS),
    Fault("inductor::of_relu::relu-raises", "error", "inductor", LOWERINGS),
    Fault("inductor::of_log1p::log1p-wrong", "wrong", "inductor", LOWERINGS),
    Fault("inductor::of_subtraction::lowering-of-another-operator", "wrong", "inductor", LOWERINGS),
    Fault("inductor::of_mutation::fusion-moves-a-mutation", "wrong", "inductor", "fusion"),
    Fault("inductor::of_product::wrong-pattern", "wrong", "inductor", "pattern passes"),
    Fault("inductor::of_sine::stale-cache-entry", "wrong", "inductor", "caches"),
    Fault("capture::of_flag::guard-of-a-flag-dropped", "specialized", "dynamo", None),
    Fault("capture::of_difference::wrong-operator-in-the-graph", "wrong", "dynamo", None),
    Fault("capture::of_change::mutation-not-written-back", "wrong", "aot_autograd", None),
    Fault("capture::of_gradient::wrong-backward-from-the-partitioner", "wrong", "aot_autograd", "partitioner"),
    Fault("capture::of_gradient::different-expressions-merged", "wrong", "aot_autograd", "common subexpressions"),
    Fault("capture::of_silu::wrong-decomposition", "wrong", "decompositions", None),
    Fault("exporting::of_difference::export-writes-another-operator", "wrong", "export", None, compiles=False),
    Fault("exporting::of_difference::aoti-of-a-wrong-program", "wrong", "export", None),
    Fault("exporting::of_silu::aoti-with-a-wrong-decomposition", "wrong", "decompositions", None),
    Fault("exporting::of_relu::aoti-with-a-wrong-relu", "wrong", "inductor", LOWERINGS),
)
"""Every planted fault, as it shows on torch 2.11.0."""
