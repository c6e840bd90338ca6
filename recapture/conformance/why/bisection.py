"""Asks torch's bisector about a cell whose stage has parts that no switch of ours turns off."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from recapture.base.scrub import scrub
from recapture.base.torch_bisector import ask_bisector
from recapture.base.torch_compat import reset_dynamo
from recapture.conformance.cell import CellSpec, examine
from recapture.conformance.why.stages import outcome
from recapture.conformance.why.variation import Variation
from recapture.pool.client import ServerDiedError
from recapture.pool.protocol import Ended
from recapture.results.records import Record  # noqa: TC001 - msgspec resolves the annotation at run time

if TYPE_CHECKING:
    from collections.abc import Callable

    from recapture.pool.worker_pool import WorkerPool

__all__ = ["bisect", "bisected"]

BISECT = f"{__name__}:bisect"


class ToBisect(msgspec.Struct, frozen=True):
    """A cell, and the record that a try must repeat to count as wrong."""

    spec: CellSpec
    record: Record


def bisect(payload: bytes, enter: Callable[[str], None]) -> bytes:
    """Run the bisector in this process: `ToBisect` → one line of text."""
    asked = msgspec.json.decode(payload, type=ToBisect)
    enter("capture")

    def is_right(backend: str) -> bool:
        reset_dynamo()
        how = Variation(backend=None if backend == "inductor" else backend)
        found = examine(msgspec.structs.replace(asked.spec, varied=how), lambda _: None)
        return outcome(asked.record, found) != "same"

    answer = ask_bisector(is_right)
    if answer is None:
        text = "torch's bisector: this release has none"
    elif answer.backend is None:
        text = f"torch's bisector finds no fault, {answer.tries} tries"
    else:
        parts = [answer.backend, answer.subsystem or "no subsystem"]
        parts += [f"application {answer.number}"] if answer.number else []
        about = f" ({answer.about})" if answer.about and answer.about != answer.subsystem else ""
        text = f"torch's bisector: {', '.join(parts)}{about}, {answer.tries} tries"
    return msgspec.json.encode(scrub(text))


def bisected(pool: WorkerPool, spec: CellSpec, record: Record, seconds: float, memory: int) -> str:
    """Ask the bisector in a child, and return its answer as a line of text; it may take some seconds at most."""
    try:
        answer = pool.client.run(BISECT, ToBisect(spec, record), str, timeout=seconds, memory=memory)
    except ServerDiedError:
        pool.restart()
        return "torch's bisector: it ended the server"
    if isinstance(answer, Ended):
        late = answer.cause == "timeout"
        return f"torch's bisector: {f'not finished after {seconds:g} s' if late else 'its process died'}"
    return answer
