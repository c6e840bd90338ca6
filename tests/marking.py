"""Marks the quick tests; `conftest` imports the hooks from here.

Quick are the tests that need neither a server nor a compiler: `nox -s quick` runs them alone. What a test needs is read
from its fixtures and from the text of its module, so that no list has to be kept.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

import pytest

from recapture.pool import worker_pool

if TYPE_CHECKING:
    from pathlib import Path

SLOW_FIXTURES = {"pool", "warm", "command", "module_command", "measured", "planted"}
"""Fixtures that start servers, compilers or other processes."""

SLOW_WORDS = re.compile(
    r"torch\.(?:compile|_dynamo|_inductor|export|jit|fx)\b|builtin_compilers|subprocess|run_document|\bbench\(|WorkerPool\(|run_groups"
)
"""Pattern in the modules of tests that are not quick: ways to capture a graph, other processes, benchmarks."""


@functools.cache
def _mentions_slow_words(module: Path) -> bool:
    return SLOW_WORDS.search(module.read_text(encoding="utf-8")) is not None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a quick test."""
    fixtures = set(getattr(item, "fixturenames", ()))
    marked = any(item.get_closest_marker(name) for name in ("slow", "engine", "slurm", "serial"))
    if not marked and not fixtures & SLOW_FIXTURES and not _mentions_slow_words(item.path):
        item.add_marker("quick")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let quick tests come last, so that several workers end at the same time: the files that remain take a moment."""
    items.sort(key=lambda item: item.get_closest_marker("quick") is not None)


@pytest.fixture(autouse=True)
def quick_tests_start_no_server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that is marked quick and makes a pool of workers."""
    if request.node.get_closest_marker("quick"):

        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("a test marked quick makes a pool of workers: see tests/marking.py")

        monkeypatch.setattr(worker_pool.WorkerPool, "__init__", refuse)
