"""Projects whose tests `upgrade` runs, on planted releases of torch."""

from __future__ import annotations

from pathlib import Path

import pytest
from planted_releases import PlantedReleases

from recapture.command.main import _run

REPOSITORY = Path(__file__).resolve().parents[1]

SUITE = """
import random, torch
def v(): return tuple(map(int, torch.__version__.split(".")))
def test_passes(): pass
def test_new_1(): assert v() < (2, 9, 1), "too new"
def test_new_2(): assert v() < (2, 9, 1), "too new"
def test_another_reason(): raise ValueError("old" if v() < (2, 9, 1) else "new")
def test_fixed(): assert v() > (2, 6, 0)
def test_always(): raise ValueError("x")
"""
"""Tests whose outcomes the version of torch decides: one is fixed after 2.6.0, three are worse on 2.9.1."""

COMPILED = """
import torch
def helper(x):
    torch._dynamo.graph_break()
    return x + 1
@torch.compile(backend="eager", dynamic=False)
def call(x):
    return helper(x * 2)
def test_it():
    for size in SIZES:
        call(torch.ones(size))
"""
"""A test that compiles two functions; the word SIZES stands for the sizes of its arguments."""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project without packages of its own; its tests run in this Python, without other plugins."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("RECAPTURE_CACHE", str(tmp_path / "cache"))
    return folder


@pytest.fixture
def planted_releases(project, monkeypatch):
    """Three releases of torch that cost nothing, beside the project."""
    releases = PlantedReleases(project.parent, ("2.6.0", "2.9.0", "2.9.1"))
    releases.use(monkeypatch)
    return releases


def write(project, text, name="test_it.py"):
    """Write a file of a project, by default its tests."""
    (project / name).write_text(text)


def run(capsys, *words):
    """Run `upgrade` for ``pytest -q``; returns its exit status, what it printed and what it said."""
    status = _run(["upgrade", *words, "--", "pytest", "-q"])
    captured = capsys.readouterr()
    return status, captured.out, captured.err
