"""A run that reproduces the records on file, with the same packages, leaves the committed files unchanged."""

from __future__ import annotations

import msgspec
import pytest
from conftest import results_below, run_in_process

from recapture.machine.environment import CpuInfo, read_environment

SUITE = """
from recapture import case

@case(example=lambda: (1,), held_out=[lambda: (2,)])
def doubles(x):
    return {result}
"""


@pytest.fixture
def run(warm, tmp_path, monkeypatch):
    """Run one case as on a machine that differs in the given facts; return the committed files' bytes."""
    suite = tmp_path / "one.py"
    checks, environment = warm.surveyed

    def run_suite(result="x + x", **facts):
        suite.write_text(SUITE.format(result=result))
        monkeypatch.setitem(warm.__dict__, "surveyed", (checks, msgspec.structs.replace(environment, **facts)))
        assert run_in_process(suite, "--compiler", "eager", "--results", tmp_path / "results") == 0
        names = ("conformance.jsonl", "conformance.md", "environment.json", "timings.jsonl")
        return {name: (results_below(tmp_path / "results") / name).read_bytes() for name in names}

    return run_suite


ANOTHER = CpuInfo(model="another CPU", cores=64, threads=64, governor="performance", memory=1 << 40)


def test_another_machine_with_the_same_packages_changes_no_file(run, warm):
    packages = {name: version for name, version in warm.surveyed[1].packages.items() if name != "recapture"}
    before = run(packages=packages)
    after = run(
        packages=packages | {"recapture": "0.1.0"}, cpu=ANOTHER, platform="Linux 5.10 x86_64", suite_commit="abc"
    )
    assert after == before


def test_a_changed_result_changes_the_description_too(run, tmp_path):
    before = run()
    after = run("x * 2", cpu=ANOTHER)
    assert after["conformance.jsonl"] != before["conformance.jsonl"]
    assert b"another CPU" in after["conformance.md"]
    assert read_environment(results_below(tmp_path / "results")).cpu == ANOTHER


def test_a_changed_lock_changes_the_description(run, tmp_path):
    run()
    run(lock_hash="sha256:0", cpu=ANOTHER)
    environment = read_environment(results_below(tmp_path / "results"))
    assert (environment.lock_hash, environment.cpu) == ("sha256:0", ANOTHER)
