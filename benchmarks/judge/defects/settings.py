"""Settings of Python, the process and torch that a call leaves changed, each planted on every case."""

from __future__ import annotations

import builtins
import copy
import decimal
import functools
import gc
import io
import locale
import logging
import math
import operator
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.judge.planting import Run, plants


def _ignore(*_: Any) -> None:
    return


def _start_a_thread() -> None:
    threading.Thread(target=threading.Event().wait, daemon=True).start()


def _another_module() -> None:
    sys.modules["json"] = types.ModuleType("json")


def _another_function() -> None:
    relu = torch.nn.functional.relu
    torch.nn.functional.relu = functools.partial(relu)


def _another_method() -> None:
    method = torch.Tensor.view_as
    torch.Tensor.view_as = functools.partialmethod(method)


WRAPPED = (
    ("spectrum", torch.fft, "rfft"),
    ("special-function", torch.special, "erf"),
    ("decomposition", torch.linalg, "qr"),
    ("method-of-linear", torch.nn.Linear, "forward"),
    ("constructor-of-linear", torch.nn.Linear, "reset_parameters"),
    ("initialisation", torch.nn.init, "kaiming_uniform_"),
    ("step-of-optimizer", torch.optim.SGD, "zero_grad"),
    ("scheduler", torch.optim.lr_scheduler.StepLR, "get_lr"),
    ("autograd", torch.autograd, "grad"),
    ("numpy", np, "dot"),
    ("numpy-random", np.random, "rand"),
    ("time", time, "monotonic"),
    ("random", random, "random"),
    ("file-function", os, "listdir"),
    ("copy", copy, "deepcopy"),
    ("operator", operator, "mul"),
    ("logarithm", math, "log1p"),
)
"""Functions in the namespaces of torch, numpy and Python: what they are called here, their owner and their name."""


def _wrap(owner: Any, name: str) -> None:
    """Put a wrapper in the place of a function."""
    function = getattr(owner, name)

    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    setattr(owner, name, wrapper)


CHANGES: dict[str, Callable[[], Any]] = {
    "warnings-ignored": lambda: warnings.simplefilter("ignore"),
    "warnings-are-errors": lambda: warnings.filterwarnings("error", category=RuntimeWarning),
    "warnings-forgotten": warnings.resetwarnings,
    "warnings-shown-otherwise": lambda: setattr(warnings, "showwarning", _ignore),
    "module-replaced": _another_module,
    "module-removed": lambda: sys.modules.pop("json"),
    "import-path": lambda: sys.path.insert(0, "/planted"),
    "recursion-limit": lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 500),
    "switch-interval": lambda: sys.setswitchinterval(0.25),
    "trace-function": lambda: sys.setprofile(_ignore),
    "exception-hook": lambda: setattr(sys, "excepthook", _ignore),
    "standard-output": lambda: setattr(sys, "stdout", io.StringIO()),
    "working-directory": lambda: os.chdir(tempfile.gettempdir()),
    "file-mode-mask": lambda: os.umask(0o111),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8" if locale.setlocale(locale.LC_ALL) == "C" else "C"),
    "signal-handler": lambda: signal.signal(signal.SIGUSR2, _ignore),
    "signal-ignored": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    "garbage-collection": gc.disable,
    "garbage-thresholds": lambda: gc.set_threshold(123, 4, 5),
    "decimal-precision": lambda: setattr(decimal.getcontext(), "prec", 9),
    "decimal-rounding": lambda: setattr(decimal.getcontext(), "rounding", decimal.ROUND_DOWN),
    "decimal-traps": lambda: decimal.getcontext().traps.update({decimal.Inexact: True}),
    "digits-of-integers": lambda: sys.set_int_max_str_digits(5000),
    "socket-timeout": lambda: socket.setdefaulttimeout(3.0),
    "logging-level": lambda: logging.getLogger().setLevel(logging.DEBUG),
    "logging-disabled": lambda: logging.disable(logging.CRITICAL),
    "logging-handler": lambda: logging.getLogger().addHandler(logging.NullHandler()),
    "numpy-errors": lambda: np.seterr(all="raise"),
    "numpy-print-options": lambda: np.set_printoptions(precision=3),
    "thread-left": _start_a_thread,
    "builtin-replaced": lambda: setattr(builtins, "sum", lambda values: len(list(values))),
    "math-replaced": lambda: setattr(math, "sqrt", lambda value: value**0.5),
    "function-of-torch-replaced": _another_function,
    "method-of-tensors-replaced": _another_method,
    **{f"{name}-replaced": functools.partial(_wrap, owner, attribute) for name, owner, attribute in WRAPPED},
    "function-of-torch-for-another": lambda: setattr(torch.nn.functional, "silu", torch.nn.functional.gelu),
    "class-of-torch-replaced": lambda: setattr(torch.nn, "Tanh", type("Tanh", (torch.nn.Tanh,), {})),
    "class-of-torch-for-another": lambda: setattr(torch.nn, "ReLU", torch.nn.GELU),
    "module-of-torch-replaced": lambda: setattr(torch, "fft", types.ModuleType("fast_fft")),
    "inherited-method-hidden": lambda: setattr(torch.nn.Linear, "__call__", lambda self, x: self.forward(x)),
    "inherited-training-hidden": lambda: setattr(torch.nn.Dropout, "train", lambda self, _=True: self),
    "function-of-torch-removed": lambda: delattr(torch.special, "expit"),
    "constant-replaced": lambda: setattr(math, "pi", 3.0),
    "property-replaced": lambda: setattr(torch.nn.RNNBase, "all_weights", property(list)),
    "autograd-threads": lambda: torch.autograd.set_multithreading_enabled(False),
    "sparse-checks": torch.sparse.check_sparse_tensor_invariants.enable,
    "fast-path": lambda: torch.backends.mha.set_fastpath_enabled(not torch.backends.mha.get_fastpath_enabled()),
    "quantized-engine": lambda: setattr(torch.backends.quantized, "engine", "onednn"),
    "forward-mode": torch.autograd.forward_ad.enter_dual_level,
    "saved-tensors-hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x).__enter__(),
    "autocast-dtype": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "autocast-cache": lambda: torch.set_autocast_cache_enabled(False),
    "global-hook": lambda: torch.nn.modules.module.register_module_forward_hook(_ignore),
    "uninitialised-filled": lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False),
    "fused-attention": lambda: torch.backends.cuda.enable_flash_sdp(False),
}
"""What leaves a setting changed, by its name."""


def _leaving(name: str, change: Callable[[], Any]) -> Callable[[Run], Any]:
    def leaves(run: Run) -> Any:
        result = run.result()
        change()
        return result

    leaves.__doc__ = f"The call leaves another setting: {name.replace('-', ' ')}."
    return leaves


for _name, _change in CHANGES.items():
    plants(f"setting-{_name}", "state")(_leaving(_name, _change))
