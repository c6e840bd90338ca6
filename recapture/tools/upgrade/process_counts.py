"""Counts what torch compiles in each Python process of a command; it needs the standard library alone.

It is copied into a folder on ``PYTHONPATH`` as ``sitecustomize.py``, so that Python imports it before anything else.
``RECAPTURE_COUNTS`` is a file to which every process appends JSON lines, ``RECAPTURE_COUNT`` says what is counted:
``compiled``, ``saved`` and ``instructions``, with commas between. The first key of a line says what it is about:

- ``break``: file, line and function of a graph break, from torch 2.6 on
- ``recompile``: file and function of a frame that is compiled again, from torch 2.6 on
- ``end``: the version of torch, with the number of ``graphs``, the most bytes that were ``saved`` for backward passes
  at once, and the ``instructions`` of compiling; null for what is not known
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.machinery
import importlib.util
import json
import logging
import os
import platform
import re
import struct
import sys
from typing import Any

COUNTS, COUNT = "RECAPTURE_COUNTS", "RECAPTURE_COUNT"

_RESUMED = re.compile(r"^torch_dynamo_resume_in_(.*)_at_\d+$")
"""What Dynamo calls the part of a function behind a graph break."""

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')

_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241}
_ENABLE, _DISABLE = 0x2400, 0x2401


class _File:
    """The file of counts; each line is written as soon as it is known, so that a killed process loses none."""

    def __init__(self, path: str) -> None:
        self.path = path

    def write(self, **fields: Any) -> None:
        with contextlib.suppress(OSError):  # a full disk: pytest's outcomes say so
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                os.write(handle, json.dumps(fields).encode() + b"\n")
            finally:
                os.close(handle)


def _plain(name: str) -> str:
    match = _RESUMED.match(name)
    return _plain(match[1]) if match else name


class _Trace(logging.Handler):
    """Hears torch's structured trace."""

    def __init__(self, file: _File) -> None:
        super().__init__(logging.DEBUG)
        self._file = file
        self._frames: dict[Any, tuple[str, str]] = {}

    def emit(self, record: logging.LogRecord) -> None:
        metadata = getattr(record, "metadata", None) or {}
        with contextlib.suppress(Exception):  # a release that writes another form must not end the command
            if "dynamo_start" in metadata:
                self._begins(metadata)
                return
            name = (metadata.get("artifact") or {}).get("name")
            if name == "dynamo_graph_break_reason":
                self._breaks(str(record.payload))  # type: ignore[attr-defined]
            elif name == "recompile_reasons":
                self._file.write(recompile=self._frames.get(metadata.get("frame_id"), ("", "")))

    def _begins(self, metadata: dict[str, Any]) -> None:
        frame = metadata["dynamo_start"]["stack"][-1]
        table = sys.modules["torch._logging.structured"].INTERN_TABLE
        file = next((text for text, number in table.items() if number == frame["filename"]), str(frame["filename"]))
        self._frames[metadata.get("frame_id")] = (file, _plain(frame["name"]))

    def _breaks(self, payload: str) -> None:
        place = re.search(r"Graph break in user code at (.+):(\d+)", payload)
        if place is None:
            return
        frames = _FRAME.findall(payload.partition("\nTraceback")[0])
        names = [name for file, line, name in frames if (file, line) == place.groups()]
        self._file.write(**{"break": (place[1], int(place[2]), _plain(names[-1]) if names else "")})


class _Saved:
    """Counts the memory that is kept for backward passes, each storage once.

    Leaves that require a gradient, which are parameters for the most part, exist anyway and are left out.
    """

    def __init__(self) -> None:
        self.now = self.most = 0
        self._held: dict[int, list[int]] = {}

    def begin(self) -> None:
        graph = sys.modules["torch.autograd.graph"]
        graph.saved_tensors_hooks(self._pack, lambda held: held.tensor).__enter__()

    def _pack(self, tensor: Any) -> Any:
        return _Held(self, tensor)

    def add(self, tensor: Any) -> int:
        try:
            storage = tensor.untyped_storage()
            address, size = int(storage.data_ptr()), int(storage.nbytes())
        except Exception:  # a tensor without memory of its own, such as a sparse one
            return 0
        if (tensor.is_leaf and tensor.requires_grad) or not address:
            return 0
        held = self._held.setdefault(address, [0, size])
        if not held[0]:
            self.now += size
            self.most = max(self.most, self.now)
        held[0] += 1
        return address

    def remove(self, address: int) -> None:
        held = self._held.get(address)
        if held is None:
            return
        held[0] -= 1
        if not held[0]:
            del self._held[address]
            self.now -= held[1]


class _Held:
    """One tensor that a backward pass will need."""

    def __init__(self, counter: _Saved, tensor: Any) -> None:
        self.tensor, self._counter, self._address = tensor, counter, counter.add(tensor)

    def __del__(self) -> None:
        self._counter.remove(self._address)


class Instructions:
    """The processor's counter of instructions in user space, on while torch compiles; what it starts is included."""

    def __init__(self) -> None:
        self._handle, self.why_none = -1, f"not known how on {platform.machine()}"
        """Why the machine counts none; empty if it does."""
        number = _PERF_EVENT_OPEN.get(platform.machine())
        if number is not None:
            # Off at first; inherited by threads and processes; without the kernel and the hypervisor.
            flags = 1 | 1 << 1 | 1 << 5 | 1 << 6
            attribute = struct.pack("=IIQQQQQ", 0, 112, 1, 0, 0, 0, flags).ljust(112, b"\0")
            buffer = ctypes.create_string_buffer(attribute, 112)
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._handle = self._libc.syscall(number, buffer, 0, -1, -1, 0)
            self.why_none = os.strerror(ctypes.get_errno()) if self._handle < 0 else ""
        if self._handle >= 0:
            os.set_inheritable(self._handle, False)

    def begin(self) -> None:
        """Count from now on, while torch compiles."""
        handler = importlib.import_module("torch._dynamo.callback").callback_handler
        handler.register_start_callback(lambda *_: self._switch(_ENABLE))
        handler.register_end_callback(lambda *_: self._switch(_DISABLE))

    def _switch(self, what: int) -> None:
        if self._handle >= 0:
            self._libc.ioctl(self._handle, what, 0)

    @property
    def number(self) -> int | None:
        """The instructions so far; None where the machine counts none."""
        return int.from_bytes(os.read(self._handle, 8), "little") or None if self._handle >= 0 else None


class _After:
    """Calls functions once certain modules have been imported."""

    def __init__(self, functions: dict[str, Any]) -> None:
        self._functions = functions

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find a module as the other finders do, and call its function after it."""
        if name not in self._functions:
            return None
        function = self._functions.pop(name)
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            with contextlib.suppress(Exception):  # what cannot be counted must not end the command
                function(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _listen(file: _File, module: Any) -> None:
    log = module.trace_log
    log.addHandler(_Trace(file))
    log.setLevel(logging.DEBUG)
    log.propagate = False


def _graphs() -> int | None:
    utils = sys.modules.get("torch._dynamo.utils")
    with contextlib.suppress(Exception):
        return int(utils.counters["stats"]["unique_graphs"]) if utils is not None else 0
    return None


def _begin(path: str, count: frozenset[str]) -> None:
    file, process = _File(path), os.getpid()
    functions: dict[str, Any] = {}
    saved = _Saved() if "saved" in count else None
    instructions = Instructions() if "instructions" in count else None
    if "compiled" in count:
        functions["torch._logging._internal"] = lambda module: _listen(file, module)
    if saved is not None:
        functions["torch.autograd"] = lambda _: saved.begin()
    if instructions is not None:
        functions["torch._dynamo.callback"] = lambda _: instructions.begin()
    sys.meta_path.insert(0, _After(functions))

    def end() -> None:
        torch = sys.modules.get("torch")
        if torch is None or os.getpid() != process:  # a fork would count what its parent has counted
            return
        end = {"torch": str(getattr(torch, "__version__", "")), "graphs": _graphs()}
        end |= {"saved": saved.most if saved is not None else None}
        end |= {"instructions": instructions.number if instructions is not None else None}
        file.write(end=end)

    atexit.register(end)


def _import_hidden() -> None:
    """Import the ``sitecustomize`` that this one hides, if there is one, such as that of a Linux distribution."""
    own = os.path.dirname(os.path.abspath(__spec__.origin or ""))  # noqa: PTH100, PTH120 - before anything else is imported
    path = [folder for folder in sys.path if os.path.abspath(folder) != own]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if __name__ == "sitecustomize":
    with contextlib.suppress(Exception):
        _import_hidden()
    if os.environ.get(COUNTS):
        with contextlib.suppress(Exception):
            _begin(os.environ[COUNTS], frozenset(os.environ.get(COUNT, "").split(",")))
