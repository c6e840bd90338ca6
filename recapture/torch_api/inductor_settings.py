"""Inductor's settings and other values for them, as torch's own fuzzer of settings chooses them (since 2.6)."""

from __future__ import annotations

import importlib
import importlib.util

from recapture.base.errors import EnvironmentUnfitError

FUZZER = "torch._inductor.fuzzer"

OTHER_PLACES = (
    "triton.",
    "cuda.",
    "rocm.",
    "xpu.",
    "halide.",
    "cutlass.",
    "aot_inductor",
    "aten_distributed",
    "test_configs.",
    "trace.",
)
"""Beginnings of the names of settings that do not matter to a program that is compiled for the CPU."""

MAY_CHANGE_RESULTS = frozenset(
    {
        "use_fast_math",
        "cpp.enable_unsafe_math_opt_flag",
        "fallback_random",
        "is_predispatch",
        "unsafe_skip_cache_dynamic_shape_guards",
        "size_asserts",
        "scalar_asserts",
        "assert_indirect_indexing",
        "implicit_fallbacks",
    }
)
"""Settings that are there to change a result, or that turn a check off."""


def changed_settings() -> dict[str, bool]:
    """Return the settings of Inductor that are on or off, each with its other value.

    Left out are those that torch's fuzzer leaves alone, those of other devices, and those that may change a result.
    Raises EnvironmentUnfitError if this release has no fuzzer of settings.
    """
    if importlib.util.find_spec(FUZZER) is None:
        raise EnvironmentUnfitError("this torch has no fuzzer of Inductor's settings: it is in 2.6 and later")
    fuzzer = importlib.import_module(FUZZER)
    config = importlib.import_module("torch._inductor.config")
    left_alone = fuzzer.MODULE_DEFAULTS[config.__name__]
    return {
        name: not entry.default
        for name, entry in config._config.items()  # noqa: SLF001 - torch's fuzzer reads it as well
        if isinstance(entry.default, bool)
        and name not in left_alone
        and name not in MAY_CHANGE_RESULTS
        and not name.startswith(("_", *OTHER_PLACES))
        and "TESTING_ONLY" not in name
    }
