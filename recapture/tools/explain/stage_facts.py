"""What can be found out about a cell's compiler here: its stages, and the switches that this release has for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from recapture.pool.protocol import task_name
from recapture.records.guilty_stage import StageName
from recapture.run.cell import CellSpec, compiler_of
from recapture.tools.explain.config_switches import Switch, switches_of
from recapture.tools.explain.stage_ladder import Family, Rung, family_of, rungs_below, top_stage
from recapture.torch_api.compat import release
from recapture.torch_api.stages import backends, has_setting

if TYPE_CHECKING:
    from collections.abc import Callable


class StageFacts(msgspec.Struct, frozen=True):
    """A compiler's ladder below its last stage `top`, and by stage the switches that this release has.

    `family` is None if the compiler has no stages that can be told apart, and `absent` names, by stage, the parts for
    which this release has no switch. `plain` is whether it calls `torch.compile` without arguments that Dynamo reads.
    `checks_inputs` is whether AOTInductor can check its inputs at run time.
    """

    family: Family | None = None
    top: StageName | None = None
    rungs: tuple[Rung, ...] = ()
    switches: dict[StageName, tuple[Switch, ...]] = {}
    absent: dict[StageName, tuple[str, ...]] = {}
    plain: bool = False
    checks_inputs: bool = False


def facts(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Find the facts about a cell's compiler in a child, because that imports much of torch."""
    enter("capture")
    spec = msgspec.json.decode(payload, type=CellSpec)
    source = compiler_of(spec).to_source()
    family = family_of(source)
    top = top_stage(family, source) if family is not None else None
    if family is None or top is None:
        return msgspec.json.encode(StageFacts())
    rungs = rungs_below(family, top, backends() if family == "compile" else ())
    stages = dict.fromkeys([*(rung.stage for rung in rungs), top])
    usable = {
        stage: tuple(one for one in switches_of(stage, family) if _is_usable(one, source, spec.device))
        for stage in stages
    }
    absent = {
        stage: tuple(
            dict.fromkeys(
                one.part
                for one in switches_of(stage, family)
                if one.module is not None
                and (spec.device == "cuda" or one.name != "triton.cudagraphs")
                and one.part not in {kept.part for kept in usable[stage]}
            )
        )
        for stage in stages
    }
    checks = family == "aoti" and release() >= (2, 7)
    plain = family == "compile" and not re.search(r"\b(dynamic|fullgraph)\s*=", source)
    return msgspec.json.encode(StageFacts(family, top, rungs, usable, absent, plain, checks))


def _is_usable(switch: Switch, source: str, device: str) -> bool:
    """Whether a switch exists on this release and changes something for a compiler with this source."""
    if switch.name == "triton.cudagraphs":  # modes turn them on
        return device == "cuda"
    if switch.module is not None:
        return has_setting(switch.module, switch.name, switch.value)
    if switch.name == "backend":
        return switch.value in backends()
    named = re.search(rf"\b{switch.name}\s*=\s*(True|False)", source) or re.search(
        rf'"{switch.name}"\s*:\s*(True|False)', source
    )
    if switch.name == "strict" and release() < (2, 2):  # torch 2.1 has no such argument
        return False
    default = "True" if switch.name == "strict" and release() < (2, 8) else "False"
    return (named[1] if named else default) != str(switch.value)


FACTS = task_name(facts)
"""The task that finds the facts about the compiler of a cell: `CellSpec` → `StageFacts`."""
