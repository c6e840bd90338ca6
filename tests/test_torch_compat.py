"""Torch's private settings and state: caches, streams of random numbers, the meaning of errors."""

import importlib.util
import os
import random
import stat
import subprocess
import sys
import types
import uuid
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import records_below

from recapture.cases.compilers import export
from recapture.pool.worker_pool import WorkerPool
from recapture.torch_api import compat as torch_compat
from recapture.torch_api.compat import (
    is_capture_error,
    is_out_of_memory,
    isolate_caches,
    release,
    reset_dynamo,
    seed_everything,
    skip_guard_timing,
)
from recapture.torch_api.preload import preload
from recapture.torch_api.watch import watch_dynamo

pytestmark = pytest.mark.filterwarnings("ignore")


def test_names_that_dynamo_gives_to_a_suite_are_forgotten(monkeypatch):
    """Dynamo puts them into the globals of the function that it starts from, which is one of this project's own."""
    importlib.import_module("torch._dynamo")
    suite = types.ModuleType("suite")
    vars(export)["__import_suite"] = suite
    monkeypatch.setattr(torch, "__import_suite", suite, raising=False)
    reset_dynamo()
    assert not hasattr(export, "__import_suite")
    assert hasattr(torch, "__import_suite")  # another's


@pytest.mark.parametrize(
    ("version", "numbers"),
    [("2.11.0+cu130", (2, 11, 0)), ("2.6", (2, 6)), ("2.13.0.dev20260101+cpu", (2, 13, 0)), ("2.1.2a0+git1", (2, 1, 2))],
)  # fmt: skip
def test_releases_compare_as_numbers(version, numbers):
    assert release(version) == numbers
    assert release("2.9") < release("2.10.1")
    assert release() == release(torch.__version__)


# --- errors of every kind, as torch raises them ---------------------------------------------------------------------


def branches(x):
    return x + 1 if x.sum() > 0 else x - 1


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def size_from_data(x):
    return torch.ones(int(x.sum().item()))


def broken_backend(graph, inputs):
    raise RuntimeError("out of order")


def raises(attempt):
    reset_dynamo()
    with pytest.raises(BaseException) as caught:
        attempt()
    return caught.value


ONES = torch.ones(3)

CAPTURE = {
    "fullgraph": lambda: torch.compile(branches, backend="eager", fullgraph=True)(ONES),
    "strict export": lambda: torch.export.export(Module(branches), (ONES,), strict=True),
    "export": lambda: torch.export.export(Module(branches), (ONES,), strict=False),
    "a size": lambda: torch.export.export(Module(size_from_data), (ONES,), strict=False),
    "a backend": lambda: torch.compile(torch.sin, backend=broken_backend)(ONES),
    "no backend": lambda: torch.compile(torch.sin, backend="no_such_backend")(ONES),
    "a constraint": lambda: torch.export.export(
        Module(lambda x: x + torch.ones(3)), (ONES,), dynamic_shapes=[({0: torch.export.Dim("n")},)], strict=False
    ),
}


@pytest.mark.parametrize("name", CAPTURE)
def test_a_failure_to_capture_is_one_wherever_it_is_raised(name):
    error = raises(CAPTURE[name])
    assert is_capture_error(error), error
    assert not is_out_of_memory(error)


def own_error():
    def fails(x):
        raise ValueError("mine")

    torch.compile(fails, backend="eager")(ONES)


OWN = {
    "shapes in eager": lambda: ONES @ torch.ones(7, 5),
    "shapes under compile": lambda: torch.compile(lambda x: x @ torch.ones(7, 5), backend="eager")(ONES),
    "an error of its own": own_error,
    "a guard": lambda: torch.export.export(Module(torch.sin), (ONES,)).module()(torch.ones(4)),
    "exit": lambda: sys.exit(1),
}


@pytest.mark.parametrize("name", OWN)
def test_what_the_case_did_wrong_is_no_failure_to_capture(name):
    assert not is_capture_error(raises(OWN[name]))


class Unprintable(RuntimeError):
    def __str__(self):
        raise ValueError


def test_memory_that_runs_out_is_known_in_every_form():
    memory = [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
        raises(lambda: torch.empty(1 << 60)),
        raises(lambda: np.empty(1 << 50)),
        RuntimeError("std::bad_alloc"),
    ]
    assert [is_out_of_memory(error) for error in memory] == [True] * len(memory)
    others = [RuntimeError("a"), ValueError("out of memory"), Unprintable(), KeyboardInterrupt()]
    assert [is_out_of_memory(error) for error in others] == [False] * len(others)


# --- seeds, caches, preloading --------------------------------------------------------------------------------------


def test_every_stream_of_random_numbers_is_seeded():
    def draw():
        return torch.rand(2).tolist(), random.random(), np.random.rand(2).tolist()  # noqa: NPY002

    seed_everything()
    first = draw()
    assert draw() != first
    seed_everything()
    assert draw() == first
    seed_everything(1)
    assert draw() != first


def test_devices_are_seeded_where_there_may_be_one(monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    for has_accelerator, expected in ((False, []), (True, [7])):
        monkeypatch.setattr(
            torch_compat, "_may_have_accelerator", lambda has_accelerator=has_accelerator: has_accelerator
        )
        seed_everything(7)
        assert torch.initial_seed() == 7
        assert seeded == expected


def test_every_cache_goes_to_one_place():
    environment = {"TORCHINDUCTOR_COMPILE_THREADS": "7", "TORCHINDUCTOR_CACHE_DIR": "before"}
    isolate_caches("/cache", "/temporary", environment)
    assert environment["TMPDIR"] == "/temporary"
    assert environment["TORCHINDUCTOR_CACHE_DIR"] == "/cache"
    assert environment["TORCH_EXTENSIONS_DIR"] == "/cache/extensions"
    assert environment["TRITON_CACHE_DIR"] == "/cache/triton"
    assert environment["TORCHINDUCTOR_FX_GRAPH_CACHE"] == environment["TORCHINDUCTOR_AUTOGRAD_CACHE"] == "0"
    assert environment["TORCHINDUCTOR_COMPILE_THREADS"] == "7"  # the user's choice


WHERE = """
import getpass, os
import msgspec

def caches(payload, enter):
    from torch._inductor import codecache
    from torch.utils import cpp_extension
    folders = [codecache.default_cache_dir(), codecache.cache_dir(), getattr(codecache, "_HEADER_DIR", "")]
    folders.append(cpp_extension._get_build_directory("planted", verbose=False))
    return msgspec.json.encode([folder for folder in folders if folder])
"""


@pytest.mark.hostile
@pytest.mark.slow
def test_every_directory_that_torch_loads_code_from_lies_in_the_runs_own_home(tmp_path, monkeypatch):
    (tmp_path / "where.py").write_text(WHERE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    with WorkerPool(device="cpu", jobs=1) as pool:
        for level in ("bare", "light"):  # in the second the server has imported Inductor, with its own environment
            pool.prepare(level, [])
            folders = pool.client.run("where:caches", None, list[str], timeout=120)
            assert len(folders) >= 3
            assert [folder for folder in folders if not Path(folder).is_relative_to(pool.home.path)] == []  # type: ignore[union-attr]
        assert stat.S_IMODE(pool.home.path.stat().st_mode) == 0o700


PACKAGES = """
import torch
from recapture import case

@case(example=lambda: (torch.ones(3),))
def adds(x):
    return x + 1
"""

PACKAGE_AS_A_USER = """
import torch

class Adds(torch.nn.Module):
    def forward(self, x):
        return x + 1

torch._inductor.aoti_compile_and_package(torch.export.export(Adds(), (torch.ones(3),)))
"""


@pytest.mark.slow
def test_a_header_that_another_user_planted_is_not_compiled(command):
    """Inductor finds precompiled headers in the temporary directory by their content's hash, and trusts them."""

    def package():
        script = [sys.executable, "-c", PACKAGE_AS_A_USER]
        own = {"TMPDIR": str(command.temporary), "TORCHINDUCTOR_CACHE_DIR": str(command.directory / uuid.uuid4().hex)}
        own["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "1"
        return subprocess.run(script, env={**os.environ, **own}, capture_output=True, text=True, check=False)

    command.temporary.mkdir()
    assert package().returncode == 0
    planted = [path for path in command.temporary.glob("torchinductor_*/precompiled_headers/**/*") if path.is_file()]
    if not planted:
        pytest.skip("this release does not precompile headers")
    for path in planted:
        path.unlink()
        if path.suffix == ".h":
            path.write_text("#error planted by another user\n")
    assert "planted by another user" in package().stderr  # the plant works
    (command.directory / "mine.py").write_text(PACKAGES)
    done = command("run", "mine.py", "--compiler", "aoti", "--results", "results")
    assert done.returncode == 0, done.stderr
    record = records_below(command.directory / "results")["mine::adds::aoti"]
    assert str(record.verdict) == "pass", record


def test_a_preload_that_fails_is_passed_over(tmp_path, monkeypatch):
    (tmp_path / "exits_on_import.py").write_text("raise SystemExit('this library cannot run here')\n")
    monkeypatch.syspath_prepend(tmp_path)
    threads = torch.get_num_threads()
    try:
        preload("bare", ["no_such_module_here", "exits_on_import", "json"])
        assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(threads)


def test_guards_are_not_timed_and_decide_as_before(monkeypatch):
    guards = importlib.import_module("torch._dynamo.guards")
    if not hasattr(guards, "profile_guard_manager"):
        pytest.skip("this release does not time guards")
    timed = []
    monkeypatch.setattr(guards, "profile_guard_manager", lambda *_: timed.append(1) or 0.0)  # type: ignore[func-returns-value]

    def scale(x, factor):
        return x * factor

    def recompiles():
        reset_dynamo()
        with watch_dynamo() as log:
            compiled = torch.compile(scale, backend="eager", dynamic=False)
            results = [compiled(torch.ones(size), factor) for size, factor in ((2, 3), (2, 3), (3, 3))]
        return log.graphs, log.recompiles, [result.tolist() for result in results]

    before = recompiles()
    assert timed
    timed.clear()
    skip_guard_timing()
    assert recompiles() == before == (2, 1, [[3.0] * 2, [3.0] * 2, [3.0] * 3])
    assert not timed
