"""Runs a cell as a run does, and keeps what torch reports meanwhile."""

from __future__ import annotations

import dataclasses
import functools
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from recapture.run.cell import result_of, rule
from recapture.tools.explain.artifacts import ArtifactFolder
from recapture.tools.explain.capture_recorder import CaptureRecorder
from recapture.tools.explain.short_form import short_lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from recapture.cases.compiler import Compiler
    from recapture.run.cell import CellResult, CellSpec


def explain(spec: CellSpec, enter: Callable[[str], None]) -> CellResult:
    """Run one cell in this process; return its findings with what torch reported.

    With `CellSpec.artifacts`, its graphs and generated code are left in that folder.
    """
    witness = CaptureRecorder(Path(spec.path))
    left: ArtifactFolder | None = None

    def entering(phase: str) -> None:
        witness.enter(phase)
        enter(phase)

    def watched(compiler: Compiler) -> Compiler:
        """Return the compiler, with its captured callable shown to the witness, and to the folder of artifacts."""
        stack.enter_context(witness.watching(compiler))
        if left is not None:
            stack.enter_context(left.receiving(witness, compiler))

        @functools.wraps(compiler.function)
        def capture(*args: Any, **options: Any) -> Any:
            captured = compiler.function(*args, **options)
            witness.captured(captured, compiler)
            return captured

        return dataclasses.replace(compiler, function=capture)

    with ExitStack() as stack:
        if spec.artifacts is not None:
            left = stack.enter_context(ArtifactFolder(Path(spec.artifacts), f"{spec.suite}::{spec.case}"))
        ruling, trial = rule(spec, entering, watched)
        findings = result_of(ruling, trial)
        facts = witness.facts(ruling, trial)
        if left is not None:
            left.finish(f"{spec.suite}::{spec.case}::{spec.compiler}", findings, ruling)
            facts = msgspec.structs.replace(facts, artifacts=left.files())
    return msgspec.structs.replace(findings, explanation=short_lines(facts), facts=facts)
