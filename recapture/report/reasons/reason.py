"""The reason of a cell's outcome: `reason_of` for every record that is not right.

Why a cell is silently wrong stands in `recapture.report.reasons.silent`. Why it fails, or did not run, follows here
from its verdict, phase and message.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from recapture.base.scrub import MAX_LENGTH
from recapture.base.source_lines import SourceLine, source_line
from recapture.base.text import plural, shorten
from recapture.cases.compiler import Family
from recapture.cases.compilers import compiler_facts
from recapture.records.record import EXAMPLE, CellKey, ErrorInfo, Record
from recapture.records.verdicts import RIGHT, SILENTLY_WRONG, Verdict
from recapture.report.reasons.messages import RULES
from recapture.report.reasons.sentence import Reason, family
from recapture.report.reasons.silent import eager_raises, silent_reason

MOST_QUOTED = 160
"""Characters of a message that is quoted."""

ASKED = ", although what differs between the inputs was asked to be dynamic"
"""What is said of a size that `export:dynamic` made static all the same."""

LOADING = "; if every package dies so, begin the command with LD_PRELOAD=libstdc++.so.6"
"""What is said of AOTInductor on a GPU: torch loads a package with whichever C++ library was loaded first."""

LONG = 100
"""Characters from which a first line is cut to its first sentence."""

_EXPLANATION = re.compile(r"^\s*Explanation: (.+?)(?:\.\s|\.?$)", re.MULTILINE)
_CAUSE = re.compile(r"## Exception summary\n<class '([\w.]+)'>: |\Abackend='[^'\n]*' raised:\s*\n((?:\w+\.)*\w+): ")
"""Where the ONNX exporter and a failed backend quote the exception that is their cause."""

_TORCHSCRIPT_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): (.+)", re.MULTILINE)


def lines_by_case(records: Iterable[Record], by_cell: Mapping[CellKey, Reason]) -> dict[str, str]:
    """Return the line of code that the reasons of a case name first, by case."""
    lines: dict[str, str] = {}
    for record in records:
        reason = by_cell.get(record.key)
        if reason is not None and reason.line is not None:
            lines.setdefault(record.case, str(reason.line))
    return lines


def reasons(records: Iterable[Record]) -> dict[CellKey, Reason]:
    """Return the reason of every record that has one, by case, compiler and device.

    The other cells of a case help: where `compile:eager` is right, the fault is not Dynamo's.
    """
    cases: dict[tuple[str, str], list[Record]] = defaultdict(list)
    for record in records:
        cases[record.case, record.device].append(record)
    return {
        record.key: reason
        for members in cases.values()
        for record in members
        if (reason := reason_of(record, members)) is not None
    }


def reason_of(record: Record, beside: Sequence[Record] = ()) -> Reason | None:
    """Return why a cell has its verdict, None for one that is right and captured whole.

    It is derived from the record, and from records of the same case `beside` it. Equal records give equal reasons.
    """
    if record.verdict in SILENTLY_WRONG:
        return silent_reason(record, beside)
    if record.verdict is Verdict.PASS_WITH_BREAKS:
        return _breaks(record)
    if record.verdict in RIGHT:
        return None
    return _failed_reason(record, beside)


def _breaks(record: Record) -> Reason:
    number = "graphs were broken" if record.graph_breaks is None else plural(record.graph_breaks, "graph break")
    first = next(iter(record.break_reasons), "")
    line = source_line(first)
    # Torch names the line at the end, which the reason has as a line already.
    words = (first.rpartition(" at ")[0] if line else "") or first
    return Reason("graph break", f"{number}: {words}" if words else number, line)


def _failed_reason(record: Record, beside: Sequence[Record]) -> Reason:
    """Return why a cell failed, or says nothing about its compiler; `beside` are records of the same case."""
    if record.error and max(len(record.error.type), len(record.error.message)) > MAX_LENGTH:
        # No run wrote it, and patterns take long on it.
        error = msgspec.structs.replace(
            record.error, type=record.error.type[:MAX_LENGTH], message=record.error.message[:MAX_LENGTH]
        )
        record = msgspec.structs.replace(record, error=error)
    if record.verdict is Verdict.CRASH:
        library = family(record.compiler) == Family.AOTI and record.phase != "capture"
        unchecked = " (an AOTInductor library reads its inputs unchecked)" if library else ""
        cause = (record.reason or "died of an unknown cause").removeprefix("died of ")
        loading = family(record.compiler) == Family.AOTI and record.phase == "capture" and record.device == "cuda"
        return Reason("died", f"the process died {_during(record)}{unchecked}: {cause}{LOADING if loading else ''}")
    if record.verdict in (Verdict.TIMEOUT, Verdict.OOM):
        detail = record.reason or (record.error and _first(record.error)) or "no more is known"
        return Reason("limit", f"{_words(record.verdict)} {_during(record)}: {detail}")
    if record.verdict is Verdict.UNSTABLE:
        detail = record.reason or "its two runs differ"
        return Reason("unstable", f"eager gives two results for one seed, so that no compiler is judged: {detail}")
    if record.error is None or record.verdict is Verdict.ENVIRONMENT:
        return Reason("not here", record.reason or (_first(record.error) if record.error else "no reason is recorded"))
    return _raised(record, record.error, beside)


def _words(verdict: Verdict) -> str:
    return "it was still running at its deadline" if verdict is Verdict.TIMEOUT else "memory ran out"


def _during(record: Record) -> str:
    """Return the step that failed, in words."""
    on = f" on {record.input}" if record.input and record.phase != "capture" else ""
    later = record.input not in (None, EXAMPLE)  # torch.compile compiles when it is called
    at_capture = f"while compiling for {record.input}" if later else "at capture"
    return {"capture": at_capture, "call": f"in the call{on}", "backward": f"in the backward{on}"}.get(
        record.phase or "", "before the capture"
    )


def _raised(record: Record, error: ErrorInfo, beside: Sequence[Record]) -> Reason:
    line = source_line(error.message)
    if record.phase == "reference":
        return Reason("not possible in eager", f"eager itself cannot run: {_quoted(error)}", line)
    if record.phase == "backward":
        text = f"the backward after the call on {record.input} fails where eager's works: {_quoted(error)}"
        return Reason("no backward", text, line)
    kind = family(record.compiler)
    eager_type = eager_raises(beside, record.input) if record.phase == "call" else ""
    if eager_type and eager_type.rpartition(".")[2] != error.type.rpartition(".")[2]:
        text = f"eager raises {eager_type} on {record.input}, and this another type, which an `except` for eager's "
        return Reason("other exception", f"{text}does not catch: {_quoted(error)}", line)
    cause = _cause(error)
    text = f"{cause.type}: {cause.message}"
    if cause is not error:
        text = f"{text}\n{_first(error)}\n{error.type}"  # some rules are about the step that failed
    for rule in RULES:
        if (rule.families and kind not in rule.families) or (rule.phase and rule.phase != record.phase):
            continue
        match = rule.pattern.search(text)
        if match is not None:
            return Reason(rule.kind, _filled(rule.text, match, record, cause), line)
    return _unknown(record, cause, line)


def _cause(error: ErrorInfo) -> ErrorInfo:
    """Return the exception that another one quotes as its cause; the error itself if it quotes none."""
    match = _CAUSE.search(error.message)
    return (
        msgspec.structs.replace(error, type=match[1] or match[2], message=error.message[match.end() :])
        if match
        else error
    )


def _filled(template: str, match: re.Match[str], record: Record, error: ErrorInfo) -> str:
    parts = {name: shorten(value or "", MOST_QUOTED) for name, value in match.groupdict().items()}
    return template.format(
        **parts,
        input=record.input or EXAMPLE,
        during=_during(record),
        compiler=record.compiler,
        type=error.type.rpartition(".")[2],
        first=shorten(_first(error), MOST_QUOTED),
        explanation=shorten(_explanation(error), MOST_QUOTED),
        advice=ASKED if compiler_facts(record.compiler).sees_held_out else "; export it with dynamic shapes",
    )


def _explanation(error: ErrorInfo) -> str:
    """Return torch's own explanation, or the first line of the message if it has none."""
    match = _EXPLANATION.search(error.message)
    return match[1] if match else _first(error)


def _unknown(record: Record, error: ErrorInfo, line: SourceLine | None) -> Reason:
    """Return the reason of an exception whose message no rule knows."""
    if record.phase == "capture":
        return Reason("message", f"refused at capture: {_quoted(error)}", line)
    if compiler_facts(record.compiler).records_a_run and record.input != EXAMPLE:
        text = f"a step that was recorded for the example fails on {record.input}: {_quoted(error)}"
        return Reason("recorded step fails", text, line)
    text = f"the call on {record.input} raises {_quoted(error)}; eager returns there, or raises another type"
    return Reason("other exception", text, line)


def _quoted(error: ErrorInfo) -> str:
    name = error.type if error.type.endswith(".Error") else error.type.rpartition(".")[2]
    return shorten(f"{name}: {_first(error)}", MOST_QUOTED)


def _first(error: ErrorInfo) -> str:
    """Return the first line of a message, without what follows its first sentence if it is long."""
    inner = _TORCHSCRIPT_RAISED.findall(error.message) if error.message.startswith("The following operation") else []
    text = inner[-1] if inner else next((line.strip() for line in error.message.splitlines() if line.strip()), "")
    if not text or text == "from user code:":
        return "an assertion without a message" if error.type == "AssertionError" else "no message"
    sentence = re.match(r".{20,}?[.!?](?=\s)", text) if len(text) > LONG else None
    return (sentence[0] if sentence else text).rstrip(":. ")
