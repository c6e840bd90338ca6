"""The stages of each family of compilers: a compiler up to a stage, and switches that turn parts of a stage off."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from recapture.cases.compiler import OTHER_STAGE, Compiler, Family
from recapture.pool.protocol import task_name
from recapture.records.guilty_stage import StageName
from recapture.records.verdicts import SILENTLY_WRONG
from recapture.run.cell import CellSpec, Variation, compiler_of
from recapture.torch_api.compat import release
from recapture.torch_api.stages import DECOMPOSED, EXPORTED, backends, has_setting

if TYPE_CHECKING:
    from recapture.records.record import Record


class StagePrefix(NamedTuple):
    """The compiler with its stages up to one: the last of them, the backend that does it, and words for people."""

    stage: StageName
    backend: str
    words: str


COMPILE = (
    StagePrefix("dynamo", "eager", "Dynamo alone (backend eager)"),
    StagePrefix("aot_autograd", "aot_eager", "and AOTAutograd (aot_eager)"),
    StagePrefix("decompositions", "aot_eager_decomp_partition", "and decompositions (aot_eager_decomp_partition)"),
)
AOTI = (
    StagePrefix("export", EXPORTED, "the exported program"),
    StagePrefix("decompositions", DECOMPOSED, "and decompositions (run_decompositions)"),
)


def prefixes_below(family: Family, top: StageName, backends: Collection[str]) -> tuple[StagePrefix, ...]:
    """Return the prefixes of a compiler whose last stage is `top`, of those that this release has, shortest first."""
    if family == Family.EXPORT:
        return ()
    if family == Family.AOTI:
        return AOTI
    prefixes = []
    for prefix in COMPILE:
        if prefix.stage == top:
            break
        if prefix.backend in backends:
            prefixes.append(prefix)
    return tuple(prefixes)


def shortest_prefix(
    prefixes: Sequence[StagePrefix], error: str = "", known: Collection[str] = ()
) -> Generator[StagePrefix, bool | None, StagePrefix | None]:
    """Search the shortest prefix that shows what the whole compiler shows, by halves.

    Yields a prefix and receives whether it shows the same; None means that there is no time left for it. Returns None
    for the whole compiler. `error` is the type of its exception, and `known` are backends that cost no time.
    """
    low, high = 0, len(prefixes)
    while low < high:
        place = _next_place(prefixes, low, high, error, known)
        same = yield prefixes[place]
        if same is None:
            break
        low, high = (low, place) if same else (place + 1, high)
    return prefixes[high] if high < len(prefixes) else None


def _next_place(prefixes: Sequence[StagePrefix], low: int, high: int, error: str, known: Collection[str]) -> int:
    """Return the prefix to try: one that is known, the one that an error's type points at, or the middle."""
    known_places = [place for place in range(low, high) if prefixes[place].backend in known]
    # They cost nothing. The middle one divides what is left best.
    if known_places:
        return known_places[len(known_places) // 2]
    # Dynamo raises its own exceptions before a backend is called, but wraps those of a backend in
    # BackendCompilerFailed.
    if error.startswith("torch._dynamo.exc.") and not error.endswith("BackendCompilerFailed"):
        return low
    return high - 1 if "Inductor" in error or "CppCompile" in error else (low + high) // 2


INDUCTOR = "torch._inductor.config"
DYNAMO = "torch._dynamo.config"
FUNCTORCH = "torch._functorch.config"
CALLS = {
    Family.DYNAMO: "torch.compile",
    Family.EXPORT: "torch.export.export",
    Family.AOTI: "torch.export.export",
}


class Switch(msgspec.Struct, frozen=True):
    """One switch: the part that it turns off, and a setting (`module` given) or an argument of the capturing call.

    `weight` says how often it is the one, compared with others. `last` switches turn off so much that they are tried
    alone, after the others. One that is `milder_than` another is tried where that one cures the cell: it costs less.
    """

    part: str
    name: str
    value: Any
    module: str | None = INDUCTOR
    weight: int = 1
    last: bool = False
    milder_than: str | None = None

    def variation(self) -> Variation:
        """Return the variation that this switch alone makes."""
        if self.module is None:
            return Variation(arguments={self.name: self.value})
        return Variation(settings={self.module: {self.name: self.value}})


INDUCTOR_SWITCHES = (
    Switch("vectorization", "cpp.simdlen", 1, weight=8),
    Switch("vectorization", "cpp.enable_loop_tail_vec", False, milder_than="cpp.simdlen"),
    Switch("precision of intermediates", "emulate_precision_casts", True, weight=6),
    Switch("precision of intermediates", "cpp.enable_floating_point_contract_flag", "off"),
    Switch("precision of intermediates", "cpp.enable_unsafe_math_opt_flag", False),
    Switch("pattern passes", "pattern_matcher", False, weight=2),
    Switch("pattern passes", "use_pre_grad_passes", False),
    Switch("pattern passes", "use_joint_graph_passes", False),
    Switch("pattern passes", "use_post_grad_passes", False),
    Switch("pattern passes", "joint_graph_constant_folding", False),
    Switch("pattern passes", "reorder_for_locality", False),
    Switch("fusion", "max_fusion_size", 1, weight=2),
    Switch("fusion", "epilogue_fusion", False),
    Switch("fusion", "cpp.max_horizontal_fusion_size", 1),
    Switch("fusion", "loop_ordering_after_fusion", False),
    Switch("inlining", "realize_opcount_threshold", 0, weight=2),
    Switch("inlining", "realize_reads_threshold", 0),
    Switch("random numbers", "fallback_random", True, weight=2),
    Switch("buffer reuse", "inplace_buffers", False, weight=2),
    Switch("buffer reuse", "allow_buffer_reuse", False),
    Switch("buffer reuse", "reorder_for_peak_memory", False),
    Switch("layout", "layout_optimization", False),
    Switch("layout", "comprehensive_padding", False),
    Switch("reductions and tiling", "split_reductions", False),
    Switch("reductions and tiling", "cpp.enable_tiling_heuristics", False),
    Switch("caches", "force_disable_caches", True),
    Switch("caches", "fx_graph_cache", False),
    Switch("CUDA graphs", "triton.cudagraphs", False, weight=4),
    Switch("lowerings and generated code", "fallback_by_default", True, last=True),
)
FUNCTORCH_SWITCHES = (
    Switch("common subexpressions", "cse", False, FUNCTORCH),
    Switch("donated buffers", "donated_buffer", False, FUNCTORCH),
    Switch("views of outputs", "view_replay_for_aliased_outputs", False, FUNCTORCH),
    Switch("parameters kept for backward", "treat_parameters_as_free_to_save", False, FUNCTORCH),
)
PARTITIONER = Switch("partitioner", "backend", "aot_eager_default_partitioner", None, last=True)
DYNAMO_SWITCHES = (
    Switch("numpy", "trace_numpy", False, DYNAMO, weight=3),
    Switch("numpy", "use_numpy_random_stream", True, DYNAMO, weight=3),
    Switch("dynamic shapes", "automatic_dynamic_shapes", False, DYNAMO, weight=3),
    Switch("Python numbers", "specialize_int", True, DYNAMO),
    Switch("Python numbers", "specialize_float", True, DYNAMO, weight=2),
    Switch("guards", "guard_nn_modules", True, DYNAMO),
    Switch("guards", "skip_nnmodule_hook_guards", False, DYNAMO, weight=2),
    Switch("guards", "skip_tensor_guards_with_matching_dict_tags", False, DYNAMO),
    Switch("guards", "skip_guards_on_constant_func_defaults", False, DYNAMO),
    Switch("guards", "use_recursive_dict_tags_for_guards", False, DYNAMO),
    Switch("modules", "inline_inbuilt_nn_modules", False, DYNAMO),
    Switch("capture", "suppress_errors", True, DYNAMO, last=True),
)
COMPILE_ARGUMENTS = (Switch("static shapes", "dynamic", True, None, last=True),)
EXPORT_SWITCHES = (
    Switch("strict mode", "strict", False, None, weight=2),
    Switch("strict mode", "strict", True, None, weight=2),
)

LIKELY: dict[str, tuple[str, ...]] = {
    "alias": ("buffer reuse", "pattern passes"),
    "mutation": ("buffer reuse", "fusion"),
    "gradient": ("pattern passes", "buffer reuse"),
    "metadata": ("layout", "pattern passes"),
}
"""Parts that are likelier than their weights say, by the kind of the first difference."""

TIMES = 6
"""How much likelier they are."""


def switches_of(stage: StageName, family: Family) -> tuple[Switch, ...]:
    """Return the switches of a stage, whatever the release."""
    if stage == Family.EXPORT.last_stage:
        return EXPORT_SWITCHES
    if stage == "dynamo":
        return DYNAMO_SWITCHES + COMPILE_ARGUMENTS
    if stage == "inductor":
        return INDUCTOR_SWITCHES
    if family != Family.DYNAMO:
        return ()
    # The other partitioner has a backend of its own, which does not decompose.
    return (*FUNCTORCH_SWITCHES, PARTITIONER) if stage == "aot_autograd" else FUNCTORCH_SWITCHES


def in_order(switches: Sequence[Switch], record: Record) -> list[Switch]:
    """Return the switches that can be tried together, the parts that are likeliest for a record first."""
    kind = record.differences[0].kind if record.differences else ""
    names = {switch.name for switch in switches}
    # A milder switch is a part of what the stronger one does: together they would say nothing more.
    together = [switch for switch in switches if not switch.last and switch.milder_than not in names]
    weights: dict[str, int] = {}
    for switch in together:
        weights[switch.part] = weights.get(switch.part, 0) + weight_of(switch, kind)
    return sorted(together, key=lambda switch: (-weights[switch.part], switch.part, -switch.weight))


def weight_of(switch: Switch, kind: str) -> int:
    """Return the weight of a switch for a cell whose first difference is of a kind."""
    return switch.weight * (TIMES if switch.part in LIKELY.get(kind, ()) else 1)


def last_resort(switches: Sequence[Switch], record: Record) -> list[Switch]:
    """Return the switches that are tried alone, after the others; some are for errors only."""
    silent = record.verdict in SILENTLY_WRONG
    # `suppress_errors` runs eager code where capturing raises: it hides errors and no wrong results.
    return [switch for switch in switches if switch.last and not (silent and switch.name == "suppress_errors")]


def combined(switches: Sequence[Switch], backend: str | None) -> Variation:
    """Return the variation that several switches make together, for the compiler up to a stage."""
    settings: dict[str, dict[str, Any]] = {}
    arguments: dict[str, Any] = {}
    for switch in switches:
        if switch.module is not None:
            settings.setdefault(switch.module, {})[switch.name] = switch.value
        elif switch.name == "backend":
            backend = switch.value
        else:
            arguments[switch.name] = switch.value
    return Variation(backend=backend, settings=settings, arguments=arguments)


def code_of(switches: Sequence[Switch], family: Family) -> str | None:
    """Return switches as the code that a user writes; None for those that only tell parts apart."""
    patches: dict[str, dict[str, Any]] = {}
    parts = []
    for switch in switches:
        if switch.module is not None:
            patches.setdefault(switch.module, {})[switch.name] = switch.value
        elif switch.name == "backend":
            return None
        else:
            parts.append(f"{CALLS[family]}(…, {switch.name}={switch.value!r})")
    texts = [f"{module}.patch({_literal(values)})" for module, values in patches.items()]
    return ", ".join([*texts, *parts])


def _literal(values: dict[str, Any]) -> str:
    return "{" + ", ".join(f'"{name}": {_value(value)}' for name, value in values.items()) + "}"


def _value(value: object) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


class StageFacts(msgspec.Struct, frozen=True):
    """A compiler's prefixes below its last stage `top`, and by stage the switches that this release has.

    `family` is None if the compiler has no stages that can be told apart, and `absent` names, by stage, the parts for
    which this release has no switch. `plain` is whether it calls `torch.compile` without arguments that Dynamo reads.
    `checks_inputs` is whether AOTInductor can check its inputs at run time.
    """

    family: Family | None = None
    top: StageName | None = None
    prefixes: tuple[StagePrefix, ...] = ()
    switches: dict[StageName, tuple[Switch, ...]] = {}
    absent: dict[StageName, tuple[str, ...]] = {}
    plain: bool = False
    checks_inputs: bool = False


def facts(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Find the facts about a cell's compiler in a child, because that imports much of torch."""
    enter("capture")
    spec = msgspec.json.decode(payload, type=CellSpec)
    compiler = compiler_of(spec)
    family, top = compiler.family, compiler.last_stage
    if not isinstance(family, Family) or top is None or top == OTHER_STAGE:
        return msgspec.json.encode(StageFacts())
    prefixes = prefixes_below(family, top, backends() if family == Family.DYNAMO else ())
    stages = dict.fromkeys([*(prefix.stage for prefix in prefixes), top])
    usable = {
        stage: tuple(switch for switch in switches_of(stage, family) if _is_usable(switch, compiler, spec.device))
        for stage in stages
    }
    absent = {
        stage: tuple(
            dict.fromkeys(
                switch.part
                for switch in switches_of(stage, family)
                if switch.module is not None
                and (spec.device == "cuda" or switch.name != "triton.cudagraphs")
                and switch.part not in {usable_switch.part for usable_switch in usable[stage]}
            )
        )
        for stage in stages
    }
    # Older releases have no such checks in the code that AOTInductor writes.
    checks = family == Family.AOTI and release() >= (2, 7)
    plain = family == Family.DYNAMO and not compiler.arguments.keys() & {"dynamic", "fullgraph"}
    return msgspec.json.encode(StageFacts(family, top, prefixes, usable, absent, plain, checks))


def _is_usable(switch: Switch, compiler: Compiler, device: str) -> bool:
    """Whether a switch exists on this release and changes something for a compiler."""
    if switch.name == "triton.cudagraphs":  # modes turn them on
        return device == "cuda"
    if switch.module is not None:
        return has_setting(switch.module, switch.name, switch.value)
    if switch.name == "backend":
        return switch.value in backends()
    if switch.name == "strict" and release() < (2, 2):  # torch 2.1 has no such argument
        return False
    # `strict` was True by default before torch 2.8.
    default = switch.name == "strict" and release() < (2, 8)
    return bool(compiler.arguments.get(switch.name, default) != switch.value)


FACTS = task_name(facts)
"""The task that finds the facts about the compiler of a cell: `CellSpec` → `StageFacts`."""
