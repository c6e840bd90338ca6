"""What a global or a closure holds stays as it was, although eager changes it: `cases.contents` has the cases."""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.judge.planting import Nothing, Run, plants

LOST = {
    "random_of_python": ("mutation",),
    "generator_in_a_closure": ("mutation",),
    "iterator_of_a_list": ("mutation",),
    "generator_expression": ("mutation",),
    "counter": ("mutation",),
    "cycle": ("mutation",),
    "pairs": ("mutation",),
    "cached_buffer": ("mutation",),
    "cached_dict": ("mutation",),
    "context_variable": ("mutation",),
    "stream": ("mutation",),
    "packed_numbers": ("mutation",),
    "bytes_in_a_closure": ("mutation",),
    "waiting": ("mutation",),
    "of_the_thread": ("mutation",),
    "counted_words": ("mutation",),
    "attribute_of_an_own_dict": ("mutation",),
    "attribute_of_a_member": ("mutation",),
    "renamed_slot": ("mutation",),
    "module_imported_inside": ("mutation",),
    "function_imported_inside": ("mutation",),
    "attribute_of_a_global_module": ("mutation",),
    "mode_of_a_global_module": ("mutation",),
    "ReplacesAPart": ("mutation",),
    "LeavesABufferOut": ("mutation",),
    "another_function": ("mutation",),
    "another_method": ("mutation",),
    "another_default": ("mutation",),
    "another_code": ("mutation",),
    "mask_of_an_array": ("mutation",),
    "read_only_array": ("mutation",),
    "array_of_c": ("mutation",),
    "resized_tensor": ("mutation",),
    "rate_of_an_optimizer": ("mutation",),
    "hook_of_a_tensor": ("mutation",),
    "grown_list_of_modules": ("mutation",),
    "registered_function": ("mutation",),
    "keywords_of_a_partial": ("mutation",),
    "behind_a_proxy": ("mutation",),
}
"""The kinds under which each lost effect may be filed, by the name of the case."""


def _lost(name: str) -> Any:
    def lost(run: Run) -> Any:
        target = type(run.target) if isinstance(run.target, torch.nn.Module) else run.function
        if target.__name__ != name or not target.__module__.endswith("contents"):
            raise Nothing
        return run.args[0] * 2

    lost.__doc__ = f"What `{name}` changes stays as it was."
    return lost


for _name, _kinds in LOST.items():
    plants(f"contents-{_name.replace('_', '-').lower()}", *_kinds)(_lost(_name))
plants("contents-filled-cache", "mutation", level="note")(_lost("filled_cache"))
