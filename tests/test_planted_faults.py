"""Faults planted into every stage of torch's compilers are located, and so are three real ones of torch 2.11.0."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import records_below
from planted_machine import needs_cxx

from benchmarks.planted_faults.__main__ import locate, located
from benchmarks.planted_faults.expected import FAULTS
from recapture.records.guilty_stage import GuiltyStage

pytestmark = [pytest.mark.slow, needs_cxx]

BUGS = Path(__file__).parent / "resources" / "stages" / "inductor_bugs.py"


@pytest.fixture(scope="module")
def planted_results():
    """The records of all planted faults, with their stages, and what was tried."""
    return locate(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.cell.rsplit("::", 1)[-1])
def test_a_planted_fault_has_the_verdict_the_stage_and_the_part_that_were_planted(fault, planted_results):
    records, staged = planted_results
    assert located(fault, records[fault.cell]), staged.get(fault.cell)


def test_the_backends_name_the_component_that_fails(planted_results):
    """The prefixes that were run of the tutorial's function: right up to the decompositions, wrong with Inductor."""
    report = planted_results[1]["inductor::of_floats::neg-doubled"].report
    assert [step.outcome for step in report.steps[:2]] == ["right", "right"]
    assert report.stage.name == "inductor"


@pytest.fixture(scope="module")
def bugs(module_command):
    """The records of the real faults."""
    results = module_command.directory / "results"
    chosen = ("--compiler", "compile", "--explain", "--device", "cpu")
    done = module_command("run", BUGS, *chosen, "--results", results)
    assert done.returncode == 0, done.stderr
    return records_below(results)


def patch(name: str, value: object) -> str:
    return f'torch._inductor.config.patch({{"{name}": {value}}})'


@pytest.mark.parametrize(
    ("case", "stage"),
    [
        (
            "argmin_of_a_transpose",
            GuiltyStage("inductor", "lowerings and generated code", patch("fallback_by_default", True)),
        ),
        ("remainder_of_infinity", GuiltyStage("inductor", "vectorization", patch("cpp.simdlen", 1))),
        ("gradient_of_a_scatter", GuiltyStage("inductor")),
    ],
)
def test_a_real_fault_of_inductor_is_located(case, stage, bugs):
    assert bugs[f"inductor_bugs::{case}::compile"].stage == stage
