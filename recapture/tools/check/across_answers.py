"""What a check says on several releases of torch: where each compiler's answer changes, and what is the same."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from recapture.base.text import plural
from recapture.cases.compiler import Family
from recapture.cases.compilers import compiler_facts, plain_compiler, shorter_compilers
from recapture.records.guilty_stage import STAGES
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG, Verdict, mark_of
from recapture.report.summary import compiler_key
from recapture.tools.check.answers import CheckReport, CheckRow, failed

if TYPE_CHECKING:
    from collections.abc import Sequence

REGRESSION = "regression"
"""What ``--fail-on`` looks for besides FAIL_ON of a check: worse on the newest release than on the oldest."""


class ReleaseAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The check on one release: its report, or `gap`, the reason why there is none, and the exit `status` of it.

    `seconds` is how long it took when it ran; `reused` says that an earlier call ran it.
    """

    release: str
    image: str
    report: CheckReport | None = None
    gap: str = ""
    status: int = 0
    seconds: float = 0.0
    reused: bool = False

    def row(self, compiler: str) -> CheckRow | None:
        """Return the row of a compiler, or None if there is none."""
        rows = self.report.rows if self.report is not None else ()
        return next((one for one in rows if one.compiler == compiler), None)


class AcrossReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answers of a check on several releases, oldest first."""

    target: str
    device: str
    releases: tuple[ReleaseAnswer, ...]
    version: Literal[1] = 1

    @property
    def gaps(self) -> list[ReleaseAnswer]:
        """The releases without an answer."""
        return [one for one in self.releases if one.report is None]

    @property
    def compilers(self) -> list[str]:
        """The compilers that any release has, in the order of the reports."""
        found = {row.compiler for one in self.releases if one.report is not None for row in one.report.rows}
        return sorted(found, key=compiler_key)

    def line(self, compiler: str) -> list[tuple[str, CheckRow, CheckReport]]:
        """Return the releases that say something about a compiler, with its row and the report of the release."""
        return [
            (one.release, row, one.report)
            for one in self.releases
            if one.report is not None and (row := one.row(compiler)) is not None and state_of(row)
        ]

    @property
    def headline(self) -> str:
        """How many compilers change their answer, in one line."""
        judged = [one for one in self.compilers if self.line(one)]
        changing = [one for one in judged if self._changes(one)]
        where = self._span([one.release for one in self.releases if one.report is not None])
        if not judged:
            return f"{self.target}: no release could be checked"
        if not changing:
            return f"{self.target}: no compiler changes its answer {where} ({plural(len(judged), 'compiler')})"
        word = "changes its" if len(changing) == 1 else "change their"
        return f"{self.target}: {len(changing)} of {plural(len(judged), 'compiler')} {word} answer {where}"

    @property
    def changes(self) -> list[str]:
        """A sentence for each answer that changes along the releases; the silently wrong ones come first."""
        sentences: dict[str, list[str]] = {}
        for compiler in self.compilers:
            if self._changes(compiler):
                sentences.setdefault(self._history(compiler), []).append(compiler)
        ordered = sorted(sentences, key=lambda text: "silently wrong" not in text)
        return [f"{', '.join(sentences[text])}: {text}" for text in ordered]

    @property
    def constants(self) -> str:
        """What is the same on every release that was checked, in one line; empty if nothing is."""
        same: dict[str, list[str]] = {}
        for compiler in self.compilers:
            line = self.line(compiler)
            if line and not self._changes(compiler):
                same.setdefault(_constant(line[0][1]), []).append(compiler)
        return "; ".join(f"{state} under {', '.join(names)}" for state, names in sorted(same.items(), reverse=True))

    @property
    def other_inputs(self) -> list[str]:
        """A line for each release on which eager accepts other derived inputs than on the first one."""
        checked = [(one.release, one.report) for one in self.releases if one.report is not None]
        lines = []
        for release, report in checked[1:]:
            before, first = checked[0]
            less = [name for name in first.inputs if name not in report.inputs]
            more = [name for name in report.inputs if name not in first.inputs]
            parts = [f"without {', '.join(less)}"] if less else []
            parts += [f"also with {', '.join(more)}"] if more else []
            if parts:
                lines.append(f"{release} was tried {' and '.join(parts)}, compared with {before}")
        return lines

    def marks(self, compiler: str) -> list[str]:
        """Return the character of each release's outcome, as in ``LEGEND``; ``?`` for a gap."""
        rows = [(one.report, one.row(compiler)) for one in self.releases]
        return [
            "?" if report is None else "–" if row is None else mark_of(Verdict(row.verdict), row.phase).letter
            for report, row in rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data: the answers in words, and every release's own report."""
        words = {"headline": self.headline, "changes": self.changes, "same": self.constants}
        return {**words, **msgspec.to_builtins(self)}

    def _changes(self, compiler: str) -> bool:
        return len({state_of(row) for _, row, _ in self.line(compiler)}) > 1

    def _history(self, compiler: str) -> str:
        """Return the states of a compiler along the releases, in words."""
        runs = [list(group) for _, group in groupby(self.line(compiler), key=lambda one: state_of(one[1]))]
        seen: set[str] = set()
        parts = []
        for number, run in enumerate(runs):
            _, row, report = run[0]
            state, first, last = state_of(row), run[0][0], run[-1][0]
            again = " again" if state in seen else ""
            when = f"{first} to {last}" if first != last else first
            if number == 0:
                where = f" up to {last}" if first != last else f" on {last}"
            else:
                where = f" from {first}" if number == len(runs) - 1 else f" on {when}"
            parts.append(f"{state.rstrip(',')}{again}{where}{_detail(row, report)}")
            seen.add(state)
        return ", ".join(parts)

    def _span(self, names: Sequence[str]) -> str:
        if len(names) < 2:
            return f"on torch {names[0]}" if names else ""
        return f"from torch {names[0]} to {names[-1]}"


def state_of(row: CheckRow) -> str:
    """Return what a compiler does with the code, in words; empty if the row says nothing about the compiler."""
    if row.verdict == Verdict.ERROR.value:
        return "refused" if row.phase == "capture" else "failing"
    state = Verdict(row.verdict).facts.state
    return f"{state}," if "," in state else state


def _constant(row: CheckRow) -> str:
    return state_of(row).rstrip(",")


def _detail(row: CheckRow, report: CheckReport) -> str:
    """Return where a silent difference shows and which layer is guilty, or an error's reason, in brackets."""
    if row.verdict in {one.value for one in SILENTLY_WRONG}:
        layer = guilty_layer(report, row.compiler)
        guilty = [f"guilty: {layer}"] if layer else []
        on = [f"wrong on {row.input}"] if row.input else []
        return f" ({', '.join([*on, *guilty])})" if on or guilty else ""
    return ""


def guilty_layer(report: CheckReport, compiler: str) -> str:
    """Return the layer that makes a compiler wrong, as far as the other rows tell: the first one that is not right."""
    rows = {row.compiler: row for row in report.rows}
    right = {one.value for one in RIGHT}
    family, export = compiler_facts(compiler).family, plain_compiler(Family.EXPORT)
    if family == Family.AOTI and export in rows:
        return "AOTInductor" if rows[export].verdict in right else "torch.export"
    if family != Family.DYNAMO:
        return ""
    for name, stage in shorter_compilers(family).items():
        if name not in rows or not state_of(rows[name]):
            return ""
        if rows[name].verdict not in right:
            return STAGES[stage]
    return "Inductor"


def failures(report: AcrossReport, wanted: Sequence[str]) -> list[str]:
    """Return a line for each compiler and release that ``--fail-on`` names: see FAIL_ON and REGRESSION."""
    usual = [name for name in wanted if name != REGRESSION]
    lines = []
    for one in report.releases:
        if one.report is not None:
            lines += [f"{row.compiler} on {one.release}: {row.words}" for row in failed(one.report, usual)]
    if REGRESSION in wanted:
        for compiler in report.compilers:
            line = report.line(compiler)
            if line and _rank(line[-1][1]) > _rank(line[0][1]):
                lines.append(
                    f"{compiler}: {_constant(line[0][1])} on {line[0][0]}, {line[-1][1].words} on {line[-1][0]}"
                )
    return lines


def _rank(row: CheckRow) -> int:
    """Return how bad an outcome is: right, failing visibly, silently wrong."""
    verdict = Verdict(row.verdict)
    return 2 if verdict in SILENTLY_WRONG else 1 if verdict in FAILING else 0
