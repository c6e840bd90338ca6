"""Settings of Python and of the process that a call can leave changed, and what it may put in place of functions.

Each is read before and after a call. A setting is a `Setting`; `torch_state` adds those of torch.
"""

from __future__ import annotations

import builtins
import decimal
import gc
import locale
import logging
import math
import os
import signal
import sys
import threading
import types
import warnings
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from recapture.base.exceptions import SUITE_MODULES
from recapture.judge.namespaces import AS_BEFORE, Names, Setting, patched, public_namespaces_of_python


def process_settings() -> dict[str, Setting]:
    """Return the settings of Python and of the process by name."""
    settings = {
        "standard_streams": _of_names(sys, "stdin", "stdout", "stderr"),
        "hooks": _of_names(
            *(sys, "displayhook", "excepthook", "unraisablehook", "breakpointhook"),
            *(threading, "excepthook"),
            *(warnings, "showwarning", "formatwarning"),
        ),
        "tracing": Setting(lambda: (sys.gettrace(), sys.getprofile()), _set_tracing, _tell_change),
        "modules": Setting(_modules, _put_modules_back, _tell_names),
        "builtins": patched("builtins", builtins),
        "math": patched("math", math),
        "namespaces": patched("replaced", *public_namespaces_of_python(), full_names=True),
        "import_path": Setting(_import_path, _set_import_path, _tell_list),
        "warning_filters": Setting(_warning_filters, _set_warning_filters, _tell_list),
        "logging": Setting(_logging_levels, _set_logging_levels),
        "log_handlers": Setting(lambda: list(logging.root.handlers), _set_log_handlers, _tell_list),
        "working_directory": Setting(_working_directory, _return_to, _tell_directory),
        "file_mode_mask": Setting(_file_mode_mask, _set_file_mode_mask),
        "locale": Setting(partial(locale.setlocale, locale.LC_ALL), _set_locale, _tell_change),
        "signal_handlers": Setting(_signal_handlers, _set_signal_handlers, _tell_names),
        "recursion_limit": Setting(sys.getrecursionlimit, sys.setrecursionlimit, _tell_recursion_limit),
        "switch_interval": Setting(sys.getswitchinterval, sys.setswitchinterval),
        "garbage_collection": Setting(gc.isenabled, lambda value: gc.enable() if value else gc.disable()),
        "garbage_thresholds": Setting(gc.get_threshold, lambda value: gc.set_threshold(*value)),
        "decimal": Setting(_decimal_context, _set_decimal_context, _tell_change),
        "threads_left": Setting(_threads_of_users, leave_alone, _tell_more),
    }
    if hasattr(sys, "set_int_max_str_digits"):
        settings["digits_of_integers"] = Setting(sys.get_int_max_str_digits, sys.set_int_max_str_digits)
    socket = sys.modules.get("socket")
    if socket is not None:
        settings["socket_timeout"] = Setting(socket.getdefaulttimeout, socket.setdefaulttimeout)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        settings["numpy_functions"] = patched("numpy", numpy, numpy.linalg, numpy.fft, numpy.random, full_names=True)
        settings["numpy_errors"] = Setting(numpy.geterr, lambda value: numpy.seterr(**value), _tell_change)
        settings["numpy_print_options"] = Setting(
            numpy.get_printoptions, lambda value: numpy.set_printoptions(**value), _tell_change
        )
    return settings


def _of_names(*owners_and_names: Any) -> Setting:
    """Return a setting of what names in modules stand for; each module comes before its names."""
    places: list[tuple[Any, str]] = []
    owner: Any = None
    for item in owners_and_names:
        if isinstance(item, types.ModuleType):
            owner = item
        elif hasattr(owner, item):
            places.append((owner, item))

    def read() -> Names:
        return Names({f"{owner.__name__}.{name}": getattr(owner, name) for owner, name in places})

    def write(before: Names) -> None:
        for owner, name in places:
            setattr(owner, name, before.names[f"{owner.__name__}.{name}"])

    return Setting(read, write, _tell_names)


def _tell_names(before: Names, after: Names) -> str:
    changed = after.names_changed_since(before)
    return f"changed: {', '.join(changed)}" if changed else AS_BEFORE


def _tell_change(before: Any, after: Any) -> str:
    return AS_BEFORE if before == after else "changed"


def _tell_more(before: int, after: int) -> str:
    """Say how many were added. One of an earlier call may end at any time, which is nobody's doing."""
    return f"{after - before} added" if after > before else AS_BEFORE


def _tell_list(before: list[Any], after: list[Any]) -> str:
    added = sum(item not in before for item in after)
    removed = sum(item not in after for item in before)
    if not added and not removed:
        return AS_BEFORE if before == after else "in another order"
    return f"{added} added, {removed} removed"


def leave_alone(_: Any) -> None:
    """Take the place of what would set a setting back where nothing can."""


def _set_tracing(value: tuple[Any, Any]) -> None:
    sys.settrace(value[0])
    sys.setprofile(value[1])


def _modules() -> Names:
    return Names(sys.modules.copy(), ignored=_is_executed_anew)


def _is_executed_anew(name: str, module: Any) -> bool:
    """Whether a module is a suite's file, which each cell executes again, or generated code.

    Compilers load that again for other programs under the same name: all launchers of Triton are `__triton_launcher`.
    """
    return name.startswith(SUITE_MODULES) or is_generated(module)


def is_generated(module: Any) -> bool:
    """Whether a module's code is in the folders of what Inductor and Triton generate."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and file.startswith(tuple(folder + os.sep for folder in _generated_folders()))


def _generated_folders() -> list[str]:
    return [os.environ[name] for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR") if os.environ.get(name)]


def _put_modules_back(before: Names) -> None:
    for name in _modules().names_changed_since(before):
        sys.modules[name] = before.names[name]


def _warning_filters() -> list[Any]:
    """Return the filters that apply to warnings of the user's.

    Libraries add filters for their own warnings where they are imported, also by a compiler: for a category of their
    own, for one message, or for their own modules.
    """
    return [
        entry
        for entry in warnings.filters
        if entry[1] is None and entry[3] is None and entry[2].__module__ == "builtins"
    ]


def _set_warning_filters(before: list[Any]) -> None:
    of_libraries = [entry for entry in warnings.filters if entry not in _warning_filters()]
    warnings.filters[:] = [*before, *of_libraries]  # type: ignore[index]
    with warnings.catch_warnings():  # leaving it makes Python forget what it has decided by the filters
        pass


def _logging_levels() -> tuple[Any, ...]:
    return logging.root.level, logging.root.manager.disable, logging.raiseExceptions


def _set_logging_levels(value: tuple[Any, ...]) -> None:
    logging.root.setLevel(value[0])
    logging.disable(value[1])
    logging.raiseExceptions = value[2]


def _set_log_handlers(before: list[Any]) -> None:
    logging.root.handlers[:] = before


def _working_directory() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return None


def _tell_directory(before: str | None, after: str | None) -> str:
    """Say whether a call went to another directory. Nobody can return to one that it removed."""
    return AS_BEFORE if after is None else _tell_change(before, after)


def _return_to(directory: str | None) -> None:
    """Make a directory the working directory again, if it is still there."""
    if directory is not None:
        with suppress(OSError):
            os.chdir(directory)


def _file_mode_mask() -> int:
    mask = os.umask(0)  # there is no way to read it alone
    os.umask(mask)
    return mask


def _set_file_mode_mask(mask: int) -> None:
    os.umask(mask)


def _set_locale(value: str) -> None:
    locale.setlocale(locale.LC_ALL, value)


def _import_path() -> list[str]:
    """Return the folders of `sys.path`, without those that libraries append when a compiler imports them."""
    return [folder for folder in sys.path if not _is_appended_by_a_library(folder)]


def _set_import_path(before: list[str]) -> None:
    sys.path[:] = [*before, *filter(_is_appended_by_a_library, sys.path)]


def _is_appended_by_a_library(folder: Any) -> bool:
    """Whether setuptools or torch.distributed appends a folder to the import path.

    That of torch.distributed is a temporary one, for the modules that it generates.
    """
    generated = getattr(sys.modules.get(_GENERATES_MODULES), "INSTANTIATED_TEMPLATE_DIR_PATH", None)
    return folder == generated or str(folder).endswith(_SETUPTOOLS_FOLDER)


_SETUPTOOLS_FOLDER = str(Path("setuptools", "_vendor"))
_GENERATES_MODULES = "torch.distributed.nn.jit.instantiator"


def _tell_recursion_limit(before: int, after: int) -> str:
    """Say which limit a call leaves. Inductor raises it to 2000 before it compiles, which is no doing of the code.

    That can be in a backward, after the settings of its call were read: then a later call begins with 2000, and it is
    as little a change as the limit that eager begins with. Source: `compile_fx_inner` in
    `torch/_inductor/compile_fx.py`, from 2.0 to 2.15.
    """
    raised = max(before, 2000)
    return f"at most {raised}" if after in (before, raised) else str(after)


def _signal_handlers() -> Names:
    return Names({number.name: signal.getsignal(number) for number in _SIGNALS})


_SIGNALS = [number for number in signal.Signals if number in signal.valid_signals()]


def _set_signal_handlers(before: Names) -> None:
    for name in _signal_handlers().names_changed_since(before):
        with suppress(ValueError, OSError, TypeError):  # outside the main thread, and of code in C
            signal.signal(signal.Signals[name], before.names[name])


def _decimal_context() -> tuple[Any, ...]:
    context = decimal.getcontext()
    return context.prec, context.rounding, [kind.__name__ for kind, is_set in context.traps.items() if is_set]


def _set_decimal_context(value: tuple[Any, ...]) -> None:
    context = decimal.getcontext()
    context.prec, context.rounding, traps = value
    for kind in context.traps:
        context.traps[kind] = kind.__name__ in traps


OF_LIBRARIES = ("torch", "triton", "concurrent", "multiprocessing", "tqdm", "asyncio", "recapture", "joblib")
"""Packages whose threads are theirs: compilers compile in them."""


def _threads_of_users() -> int:
    """Return the number of Python's threads that no library has started for itself."""
    return sum(not _of_libraries(thread) for thread in threading.enumerate())


def _of_libraries(thread: threading.Thread) -> bool:
    modules = (type(thread).__module__, getattr(getattr(thread, "_target", None), "__module__", None))
    return _first_parts(modules) & {*OF_LIBRARIES} != set()


def _first_parts(names: Iterable[str | None]) -> set[str]:
    return {(name or "").partition(".")[0] for name in names}


PROCESS = frozenset({*process_settings(), "numpy_errors", "numpy_functions", "numpy_print_options", "socket_timeout"})
"""The names of the settings of Python and the process."""
