"""Records what a call prints, warns and logs, and leaves out what torch itself says."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import stat
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Recorded:
    """What was printed to `sys.stdout` and to `sys.stderr`, the warnings, and the bytes written past `sys.stdout`."""

    text: io.StringIO = field(default_factory=io.StringIO)
    stderr: io.StringIO = field(default_factory=io.StringIO)
    warnings: list[str] = field(default_factory=list)
    written: int | None = None


@contextlib.contextmanager
def recorded(record: Recorded, *, everything: bool) -> Iterator[None]:
    """Record what is printed, and warnings; with `everything`, all of it and log messages in `text`, in their order.

    Warnings and log messages of torch itself are left out.
    """
    text, stderr = record.text, sys.stderr
    before = _size_of_output()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(text))
        # What is no part of the output stays readable in the log, also of a process that dies in this call.
        stack.enter_context(contextlib.redirect_stderr(text if everything else _Both(record.stderr, stderr)))
        stack.enter_context(_torch_logs_to(stderr))
        # Leaving this context makes Python forget which warnings it has shown: each call shows them again.
        shown_again = warnings.catch_warnings()
        if everything:
            stack.enter_context(shown_again)
        else:
            with shown_again:
                pass
        show = warnings.showwarning

        def note(message: Warning | str, category: type[Warning], filename: str, *where: Any, **more: Any) -> None:
            of_torch = _of_torch(category.__module__) or issuer().is_relative_to(folder_of_torch())
            of_torch = of_torch or FROM_CPP in str(message)
            if everything and not of_torch:
                text.write(f"{category.__name__}: {message}\n")
                return
            if not of_torch:
                record.warnings.append(f"{category.__name__}: {message}")
            with contextlib.redirect_stderr(stderr):
                show(message, category, filename, *where, **more)

        warnings.showwarning = note
        stack.callback(_set_back, warnings, "showwarning", note, show)
        if everything:
            handler = _LogHandler(text)
            logging.getLogger().addHandler(handler)
            stack.callback(logging.getLogger().removeHandler, handler)
        if logging.lastResort is not None:
            last = _LastResort(sys.stderr, stderr)
            stack.callback(_set_back, logging, "lastResort", last, logging.lastResort)
            logging.lastResort = last
        yield
    after = _size_of_output()
    record.written = None if before is None or after is None or after < before else after - before


FROM_CPP = "(Triggered internally at "
"""What torch adds to a warning of its own C++, which names the line of the user and comes once in a process."""


def add_to_log(stream: Any, text: str) -> None:
    """Write to an output of this process. It is lost where the code has closed the stream, or removed it."""
    with contextlib.suppress(Exception):
        stream.write(text)


def _set_back(owner: Any, name: str, now: Any, before: Any) -> None:
    """Set an attribute back, unless the call itself has set it."""
    if getattr(owner, name) is now:
        setattr(owner, name, before)


def _size_of_output() -> int | None:
    """Return the size of the file to which the process writes its standard output; None if it is no file."""
    try:
        for stream in (sys.stdout, sys.__stdout__):
            if stream is not None:
                stream.flush()
        status = os.fstat(1)
    except (OSError, ValueError):  # closed
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


class _Both(io.TextIOBase):
    """A stream that writes to a text and to another stream, if the code has left one: Python's own may be None."""

    def __init__(self, text: io.StringIO, stream: Any) -> None:
        self.text = text
        self.stream = stream

    def write(self, text: str) -> int:
        self.text.write(text)
        if self.stream is not None:
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        if self.stream is not None:
            self.stream.flush()

    def fileno(self) -> int:
        return int(self.stream.fileno())


def _of_torch(name: str) -> bool:
    """Whether a module or logger belongs to torch itself; ``torchmetrics`` does not."""
    return name.partition(".")[0] == "torch"


@contextlib.contextmanager
def _torch_logs_to(stderr: Any) -> Iterator[None]:
    """Print what torch logs to `stderr`, while `sys.stderr` is another stream: handlers of torch 2.15 follow it."""
    replaced = []
    for name, logger in [*logging.root.manager.loggerDict.items()]:
        # Of hundreds of loggers few have handlers, and this runs twice in every call.
        if getattr(logger, "handlers", None) and isinstance(logger, logging.Logger) and _of_torch(name):
            for handler in [handler for handler in logger.handlers if getattr(handler, "stream", None) is sys.stderr]:
                apart = logging.StreamHandler(stderr)
                apart.setLevel(handler.level)
                apart.setFormatter(handler.formatter)
                apart.filters = handler.filters
                logger.handlers = [apart if other is handler else other for other in logger.handlers]
                replaced.append((logger, apart, handler))
    try:
        yield
    finally:
        for logger, apart, handler in replaced:
            logger.handlers = [handler if other is apart else other for other in logger.handlers]


class _LogHandler(logging.Handler):
    def __init__(self, text: io.StringIO) -> None:
        super().__init__()
        self.text = text

    def emit(self, record: logging.LogRecord) -> None:
        if not _of_torch(record.name):
            self.text.write(f"{record.levelname} {record.name}: {record.getMessage()}\n")


class _LastResort(logging.StreamHandler):  # type: ignore[type-arg]
    """Prints warnings of loggers that have no handler, as `logging.lastResort` does, but those of torch elsewhere.

    torch 2.3.1 says in this way that it skips CUDA graphs.
    """

    def __init__(self, stream: Any, elsewhere: Any) -> None:
        super().__init__(stream)
        self.elsewhere = elsewhere
        self.setLevel(logging.WARNING)

    def emit(self, record: logging.LogRecord) -> None:
        if _of_torch(record.name):
            self.elsewhere.write(self.format(record) + self.terminator)
        else:
            super().emit(record)


def folder_of_torch() -> Path:
    """Return the folder of torch's files."""
    import torch

    return Path(torch.__file__).parent


def issuer() -> Path:
    """Return the file of the code that issues the warning which is being shown.

    The file that a warning names is another with ``stacklevel``: under `torch.compile` the caller is a file of torch.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the frames below
    while frame.f_back is not None and frame.f_globals.get("__name__") in (__name__, "warnings"):
        frame = frame.f_back
    return Path(frame.f_code.co_filename)
