"""The stages that torch's compilers consist of: stopping after one, and changing the settings of another.

A compiler is any function that calls `torch.compile`, `torch.export.export` or AOTInductor; `redirected` changes what
these calls do, whoever makes them. Where a release lacks a setting, `lacking` says so.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    Settings = Mapping[str, Mapping[str, Any]]

EXPORTED = "exported"
"""Name of what AOTInductor starts from, the exported program itself."""

DECOMPOSED = "decomposed"
"""Name of the exported program after the decompositions that Inductor uses."""

_ABSENT = object()
_NOTHING: Mapping[str, Any] = {}


def backends() -> frozenset[str]:
    """Return the names of the backends of `torch.compile` on this release."""
    dynamo = importlib.import_module("torch._dynamo")
    try:
        return frozenset(dynamo.list_backends(exclude_tags=()))
    except TypeError:  # torch 2.0 names the argument otherwise
        return frozenset(dynamo.list_backends())


def _owner(module: str, name: str) -> tuple[Any, str]:
    """Return the object that holds a setting such as ``cpp.simdlen``, and the setting's last name."""
    owner: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    return owner, last


def has_setting(module: str, name: str, value: object) -> bool:
    """Whether this release has a setting, can patch it, and has another value for it by default."""
    try:
        owner, last = _owner(module, name)
        default = getattr(owner, last, _ABSENT)
        return default is not _ABSENT and default != value and hasattr(importlib.import_module(module), "patch")
    except Exception:  # a module of torch may fail to import where a package is missing
        return False


def _change(settings: Settings) -> None:
    for module, values in settings.items():
        for name, value in values.items():
            owner, last = _owner(module, name)
            setattr(owner, last, value)


@contextmanager
def redirected(
    backend: str | None, settings: Settings, arguments: Mapping[str, Any], variables: Mapping[str, str]
) -> Iterator[None]:
    """Make the compilers that are called in the block use another backend, settings, arguments or variables.

    `backend` is one of `torch.compile`, or `EXPORTED` or `DECOMPOSED` for AOTInductor; None leaves it as it is.
    `settings` are values by module and dotted name. They and `variables`, those of the environment, remain afterwards,
    because compilation happens at the first call. `arguments` replace those that the call names itself.
    """
    import torch

    os.environ.update(variables)

    def changed(function: Callable[..., Any], more: Mapping[str, Any] = _NOTHING) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            _change(settings)  # here, after what the compiler has set itself
            return function(*args, **{**kwargs, **more})

        return call

    inductor = importlib.import_module("torch._inductor")
    stopped = backend in (EXPORTED, DECOMPOSED)
    with ExitStack() as stack:

        def replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
            if hasattr(owner, name):
                stack.enter_context(patch.object(owner, name, function))

        if backend is None or stopped:
            replace(torch, "compile", changed(_with_options(torch.compile, settings), arguments))
        else:
            replace(torch, "compile", changed(torch.compile, {**arguments, "backend": backend, **_NO_MODE}))
        if (exporter := _exporter()) is not None:
            strict = {name: value for name, value in arguments.items() if name == "strict"}
            replace(exporter, "export", changed(exporter.export, strict))
        if stopped:
            replace(inductor, "aoti_load_package", _module)
            replace(inductor, "aoti_compile_and_package", changed(_STOPPED[str(backend)]))
        elif hasattr(inductor, "aoti_compile_and_package"):
            replace(inductor, "aoti_compile_and_package", changed(inductor.aoti_compile_and_package))
        yield


_NO_MODE = {"mode": None, "options": None}
"""Arguments for a backend other than Inductor, which alone has modes and options."""


def _exporter() -> Any:
    """Return the module `torch.export`, or None where the release has none or another thing of this name."""
    try:
        module = importlib.import_module("torch.export")
    except ImportError:  # torch 2.0
        return None
    return module if callable(getattr(module, "export", None)) else None


def _with_options(function: Callable[..., Any], settings: Settings) -> Callable[..., Any]:
    """Return `torch.compile` with a mode written as its options, without those that `settings` decide."""
    ours = settings.get("torch._inductor.config", {})

    def call(*args: Any, **kwargs: Any) -> Any:
        mode = kwargs.get("mode")
        if mode not in (None, "default") and ours:
            listed = importlib.import_module("torch._inductor").list_mode_options(mode)
            kwargs |= {"mode": None, "options": {**listed, **(kwargs.get("options") or {})}}
        if kwargs.get("options"):
            options = {name: value for name, value in kwargs["options"].items() if name.replace("-", "_") not in ours}
            kwargs["options"] = options or None
        return function(*args, **kwargs)

    return call


def _exported(program: Any, *_args: Any, **_kwargs: Any) -> Any:
    return program


def _decomposed(program: Any, *_args: Any, **_kwargs: Any) -> Any:
    table = importlib.import_module("torch._inductor.decomposition").select_decomp_table()
    return program.run_decompositions(table)


def _module(program: Any, *_args: Any, **_kwargs: Any) -> Any:
    return program.module()


_STOPPED: dict[str, Callable[..., Any]] = {EXPORTED: _exported, DECOMPOSED: _decomposed}
