"""An issue for PyTorch: measures what it states, and writes the form that PyTorch's bug template asks for, in Markdown.

Measured are the script's outcome with each backend, and the installation that it ran in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from recapture.base.errors import EnvironmentUnfitError, UsageError
from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain
from recapture.base.text import plural, printable
from recapture.machine.environment import Environment
from recapture.pool.protocol import EXITED, Ended
from recapture.records.verdicts import Verdict
from recapture.report.history import IN_WORDS, CellHistory
from recapture.run import tasks
from recapture.run.preparation import SURVEY_SECONDS
from recapture.tools.explain.script.choice import TriedScript, choose, run
from recapture.tools.explain.script.header import STATUS

if TYPE_CHECKING:
    from recapture.run.cell import CellResult
    from recapture.tools.explain.reduce.reducing import Reduced, Reduction
    from recapture.tools.explain.script.choice import ScriptEnd

BACKENDS = ("eager", "aot_eager", "inductor")
"""The backends of `torch.compile` that an issue compares, in the order of their stages."""


class Upstream(NamedTuple):
    """What an issue states about a cell.

    `reduced` is its reduction, if one was asked for. `backends` has how the script ended with each backend, where the
    cell's compiler is `torch.compile`.
    """

    address: str
    device: str
    result: CellResult
    script: TriedScript
    backends: tuple[tuple[str, ScriptEnd], ...]
    environment: Environment
    reduced: Reduced | None


def gather(reduction: Reduction, reduced: Reduced | None) -> Upstream:
    """Run what an issue states. Raises UsageError for a cell without a fault, or without any script."""
    if reduced is None:
        program, result, _ = reduction.begin()
    else:
        program, result = reduced.program, reduced.result
    if result.verdict is Verdict.UNSTABLE:
        raise UsageError(f"{reduction.address} is unstable: eager disagrees with itself, so no compiler is at fault")
    if result.verdict is Verdict.CRASH and (result.reason or "").startswith(EXITED):
        raise UsageError(
            f"{reduction.address}: the code ends its process ({result.reason}), so no compiler is at fault"
        )
    script = choose(reduction, program, result)
    if script is None:
        raise UsageError(f"{reduction.address} cannot be printed as a script")
    backends = BACKENDS if script.has_backends else ()
    outcomes = tuple((name, run(reduction, script.text, name)) for name in backends)
    pool = reduction.runner.pool
    environment = pool.client.run(tasks.ENVIRONMENT, reduction.spec.device, Environment, timeout=SURVEY_SECONDS)
    if isinstance(environment, Ended):
        raise EnvironmentUnfitError("this environment cannot be described")
    return Upstream(reduction.address, reduction.spec.device, result, script, outcomes, environment, reduced)


MOST_OUTPUT = 4000
"""Characters shown of what the script prints."""

RELEVANT = re.compile(r"numpy|mypy|flake8|triton|optree|onnx|intel|mkl|magma|nccl|cudnn|cublas|^torch")
"""Names of the packages that torch's own collect_env lists."""

PHASES = {
    "capture": "raises an exception when it captures",
    "call": "raises an exception when it is called",
    "backward": "raises an exception in the backward",
}


def issue_text(facts: Upstream, histories: Sequence[CellHistory] | None) -> str:
    """Return the text of an issue.

    `histories` are the cell's recorded releases; None if there are no records.
    """
    compiler = facts.address.split("::")[-1]
    lines = [
        f"<!-- title: {_comment(compiler, facts.result)} -->",
        "",
        "### 🐛 Describe the bug",
        "",
        f"{code(compiler)} {_does(facts.result)}. {plain(_evidence(facts.result))}",
        "",
        *_script(facts),
        *_backends(facts),
        *_releases(histories),
        "### Error logs",
        "",
        *_fenced(_logs(facts), "text"),
        "",
        "### Versions",
        "",
        *_fenced(versions(facts.environment), "text"),
    ]
    return "\n".join(lines) + "\n"


def _comment(compiler: str, result: CellResult) -> str:
    """Return a title that can stand in a comment of HTML."""
    text = printable(f"{compiler}: {_title(result)}", keep="")
    return re.sub(r"[<>]|-{2,}", " ", text)


def _title(result: CellResult) -> str:
    if result.differences and result.error is None:
        first = next(difference for difference in result.differences if difference.input == result.input)
        return f"{result.verdict}: {first.kind} of {first.where} differs from eager"
    if result.error is not None:
        return f"{result.error.type.rpartition('.')[2]}: {next(iter(result.error.message.splitlines()), '')}"[:200]
    return f"{result.verdict}: {result.reason or ''}"


def _does(result: CellResult) -> str:
    if result.error is not None and result.phase is not None and result.verdict is Verdict.ERROR:
        return PHASES.get(str(result.phase), "raises an exception")
    return result.verdict.facts.does or f"is {result.verdict}"


def _evidence(result: CellResult) -> str:
    if result.error is not None:
        return f"Eager runs the same code. It raises {result.error.type}."
    if result.differences:
        first = next(difference for difference in result.differences if difference.input == result.input)
        return f"On {first.input}, {first.where} differs ({first.kind}): {first.detail}."
    return f"{result.reason}." if result.reason else ""


def _script(facts: Upstream) -> list[str]:
    status = facts.script.end.status
    ended = f"Here it exits with {status}." if status is not None else f"Here its process {facts.script.end.output}."
    reduced = facts.reduced
    smaller = ""
    if reduced is not None:
        before, after = plural(reduced.before.lines, "line"), plural(reduced.after.lines, "line")
        smaller = f" The case was reduced from {before} to {after}."
    return [
        f"{STATUS.replace('Exits', 'This script exits')} {plain(ended)}{smaller}",
        "",
        *_fenced(facts.script.text, "python"),
        "",
    ]


def _backends(facts: Upstream) -> list[str]:
    if not facts.backends:
        return ["The script compares with plain eager. Other backends do not apply to this compiler.", ""]
    rows = [f"| {code(name, in_table=True)} | {plain(_ending(end))} |" for name, end in facts.backends]
    return ["| backend | the script |", "|---|---|", *rows, ""]


def _ending(end: ScriptEnd) -> str:
    if end.status is None:
        return f"its process {end.output}"
    outcomes = {0: "as eager", 1: "shows a fault"}
    return f"{outcomes.get(end.status, 'ends with an error')} (exit status {end.status})"


def _releases(histories: Sequence[CellHistory] | None) -> list[str]:
    if not histories:
        return ["Other releases: not recorded.", ""]
    lines = []
    for history in histories:
        known = [entry for entry in history.entries if entry.record is not None]
        verdicts = ", ".join(f"{entry.torch} {entry.record.verdict}" for entry in known if entry.record is not None)
        turns = "; ".join(f"{IN_WORDS[turn.kind]} {turn.image}" for turn in history.turns) or "no change among these"
        lines.append(f"- {plain(history.capability)}: {plain(turns)}. Recorded: {plain(verdicts)}.")
    return ["Releases, from recorded runs of the whole case:", "", *lines, ""]


def _logs(facts: Upstream) -> str:
    output = facts.script.end.output.strip() or "(the script prints nothing)"
    return output if len(output) <= MOST_OUTPUT else f"{output[:MOST_OUTPUT]}\n…"


def _fenced(text: str, language: str) -> list[str]:
    """Return text as a block of code whose fence is longer than any run of backticks in it."""
    fence = "`" * max(3, max(map(len, re.findall("`+", text)), default=0) + 1)
    return [f"{fence}{language}", printable(text.rstrip("\n"), keep="\n\t"), fence]


def versions(environment: Environment) -> str:
    """Return an installation as torch's collect_env prints it; hosts, users and paths are not recorded."""
    gpu = environment.gpu is not None
    lines = [
        f"PyTorch version: {environment.torch.version}",
        f"CUDA used to build PyTorch: {environment.torch.cuda or 'N/A'}",
        "",
        f"OS: {environment.platform}",
        *(f"{name}: {version or 'Could not collect'}" for name, version in sorted(environment.compilers.items())),
        f"Libc version: {(environment.libc or 'N/A').replace(' ', '-')}",
        "",
        f"Python version: {environment.python}",
        f"Is CUDA available: {gpu}",
        f"GPU models and configuration: {environment.gpu.name if environment.gpu is not None else 'No CUDA'}",
        f"cuDNN version: {environment.torch.cudnn or 'N/A'}" if gpu else "cuDNN version: not used",
        "",
        f"CPU: {environment.cpu.model}, {plural(environment.cpu.cores, 'core')}",
        "",
        "Versions of relevant libraries:",
        *_packages(environment.packages.items()),
    ]
    return "\n".join(lines)


def _packages(packages: Iterable[tuple[str, str]]) -> list[str]:
    return [f"[pip3] {name}=={version}" for name, version in sorted(packages) if RELEVANT.search(name)]
