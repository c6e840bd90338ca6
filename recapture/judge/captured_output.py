"""What is printed, warned and logged during a call, without what torch itself says."""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import io
    from collections.abc import Iterator


@contextlib.contextmanager
def recorded(text: io.StringIO, *, everything: bool) -> Iterator[None]:
    """Write what is printed to `text`; with `everything`, also what goes to stderr, warnings and log messages.

    They stand in the order in which they come. Warnings and log messages of torch itself are left out.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(text))
        if everything:
            stderr = sys.stderr
            stack.enter_context(contextlib.redirect_stderr(text))
            stack.enter_context(_torch_logs_to(stderr))
            stack.enter_context(warnings.catch_warnings())
            show = warnings.showwarning

            def note(message: Warning | str, category: type[Warning], filename: str, *where: Any, **more: Any) -> None:
                if _of_torch(category.__module__) or issuer().is_relative_to(folder_of_torch()):
                    with contextlib.redirect_stderr(stderr):
                        show(message, category, filename, *where, **more)
                else:
                    text.write(f"{category.__name__}: {message}\n")

            warnings.showwarning = note
            handler = _LogHandler(text)
            logging.getLogger().addHandler(handler)
            stack.callback(logging.getLogger().removeHandler, handler)
            if logging.lastResort is not None:
                stack.callback(setattr, logging, "lastResort", logging.lastResort)
                logging.lastResort = _LastResort(text, stderr)
        yield


def _of_torch(name: str) -> bool:
    """Whether a module or logger belongs to torch itself; ``torchmetrics`` does not."""
    return name.partition(".")[0] == "torch"


@contextlib.contextmanager
def _torch_logs_to(stderr: Any) -> Iterator[None]:
    """Print what torch logs to `stderr`, while `sys.stderr` is another stream: handlers of torch 2.15 follow it."""
    replaced = []
    for name, logger in [*logging.root.manager.loggerDict.items()]:
        if isinstance(logger, logging.Logger) and _of_torch(name):
            for handler in [one for one in logger.handlers if getattr(one, "stream", None) is sys.stderr]:
                apart = logging.StreamHandler(stderr)
                apart.setLevel(handler.level)
                apart.setFormatter(handler.formatter)
                apart.filters = handler.filters
                logger.handlers = [apart if one is handler else one for one in logger.handlers]
                replaced.append((logger, apart, handler))
    try:
        yield
    finally:
        for logger, apart, handler in replaced:
            logger.handlers = [handler if one is apart else one for one in logger.handlers]


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

    def __init__(self, text: io.StringIO, elsewhere: Any) -> None:
        super().__init__(text)
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
