"""Tries ``recapture check`` on models that nobody here wrote: thirty of torchvision, ten of timm, ten of transformers.

    python -m benchmarks.own_models --records FILE [--compiler NAME]... [--model NAME]... [--models-at-once N]
                                    [--jobs N] [--seconds N] [--table]

Weights are random, and inputs are small. Each finished cell is appended to the file of records, one JSON object a
line, so that an interrupted benchmark goes on where it stopped, and further compilers can be added. Each model is
checked by a process of its own, and ``--seconds`` ends those that still run. ``--table`` runs nothing and prints the
Markdown table of what the file holds. timm and transformers are installed by the user.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections import Counter
from pathlib import Path

import click
import msgspec

from benchmarks.record_lines import read_lines
from benchmarks.side_by_side import append_row, run_parts
from recapture.base.errors import RecaptureError
from recapture.base.text import one_line, shorten
from recapture.cases.target import parse_input
from recapture.records.verdicts import FAILING, RIGHT, SILENTLY_WRONG
from recapture.report.document import Table, code_span
from recapture.report.markdown_writer import table_markdown
from recapture.tools.check.answers import CheckReport, CheckRow
from recapture.tools.check.case_text import Prepared
from recapture.tools.check.request import CheckOptions, CheckRequest
from recapture.tools.check.session import CheckEvents, run_check

CHEAP = ("eager", "jit.trace", "jit.script", "fx", "make_fx", "export", "compile:eager")
"""Default compilers: they generate no code."""

SECONDS = 150.0
"""Seconds that a compiler may take for one model."""

TARGETS = str(Path(__file__).with_name("own_model_targets.py"))

IMAGES = "2x3x64x64"
"""Input of a model of images that takes any size."""

TORCHVISION = {
    "alexnet": IMAGES,
    "vgg11": "2x3x32x32",
    "resnet18": IMAGES,
    "resnext50_32x4d": IMAGES,
    "wide_resnet50_2": IMAGES,
    "densenet121": IMAGES,
    "inception_v3": "2x3x96x96",
    "mnasnet0_5": IMAGES,
    "mobilenet_v2": IMAGES,
    "mobilenet_v3_small": IMAGES,
    "efficientnet_b0": IMAGES,
    "efficientnet_v2_s": IMAGES,
    "regnet_x_400mf": IMAGES,
    "regnet_y_400mf": IMAGES,
    "shufflenet_v2_x0_5": IMAGES,
    "squeezenet1_1": IMAGES,
    "convnext_tiny": IMAGES,
    "swin_t": IMAGES,
    "swin_v2_t": IMAGES,
    "vit_b_32": "1x3x224x224",
    "fcn_resnet50": "1x3x48x48",
    "deeplabv3_mobilenet_v3_large": IMAGES,
    "lraspp_mobilenet_v3_large": IMAGES,
    "ssdlite320_mobilenet_v3_large": "photographs",
    "fasterrcnn_mobilenet_v3_large_320_fpn": "photographs",
    "fcos_resnet50_fpn": "photographs",
    "r3d_18": "1x3x4x32x32",
    "r2plus1d_18": "1x3x4x32x32",
    "mc3_18": "1x3x4x32x32",
    "raft_small": "two_frames",
}
"""Models of torchvision: twenty of classification, three each of segmentation, detection and video, one of flow."""

TIMM = (
    *("resnet10t", "lcnet_050", "ghostnet_050", "tinynet_e", "test_vit"),
    *("test_maxvit", "mobilevit_xxs", "edgenext_xx_small", "convnext_atto", "mambaout_femto"),
)
TRANSFORMERS = ("bert", "roberta", "albert", "distilbert", "gpt2", "llama", "qwen2", "opt", "t5", "vit")

WORDS = {
    "pass": "right",
    "pass_with_breaks": "breaks",
    "specialized": "wrong",
    "not_applicable": "–",
}
"""Short words of the table; other verdicts stand for themselves."""


class Tried(msgspec.Struct, frozen=True):
    """One check of one model: what came out, or why nothing did; `seconds` is its wall time."""

    model: str
    report: CheckReport | None = None
    error: str = ""
    seconds: float = 0.0


def requests() -> dict[str, CheckRequest]:
    """Return what is checked, by name, the largest models first: ``torchvision:resnet18``."""
    requests_by_name = {}
    for name, input_words in TORCHVISION.items():
        text = input_words[:1].isdigit()
        requests_by_name[f"torchvision:{name}"] = CheckRequest(
            place="torchvision",
            name=name,
            inputs=(parse_input(input_words),) if text else (),
            inputs_from=None if text else (TARGETS, input_words),
        )
    for name in TRANSFORMERS:
        images = name == "vit"
        requests_by_name[f"transformers:{name}"] = CheckRequest(
            place=TARGETS,
            name=name,
            inputs=(parse_input(IMAGES),) if images else (),
            inputs_from=None if images else (TARGETS, "tokens"),
        )
    for name in TIMM:
        requests_by_name[f"timm:{name}"] = CheckRequest(
            place=TARGETS, name=f"timm_{name}", inputs=(parse_input("1x3x160x160" if "test" in name else IMAGES),)
        )
    return requests_by_name


def rows_of(tried: list[Tried]) -> dict[str, dict[str, CheckRow]]:
    """Return the latest row of each model and compiler."""
    rows: dict[str, dict[str, CheckRow]] = {}
    for attempt in tried:
        rows.setdefault(attempt.model, {}).update(
            {row.compiler: row for row in attempt.report.rows} if attempt.report else {}
        )
    return rows


def check_one(file: Path, name: str, compilers: tuple[str, ...], jobs: int) -> None:
    """Check one model in this process; every finished cell is a line of the file of records."""
    began = time.monotonic()
    known: list[Prepared] = []

    def keep(tried: Tried) -> None:
        append_row(file, msgspec.json.encode(tried))

    def finished(row: CheckRow) -> None:
        prepared = known[0]
        report = CheckReport(
            target=name,
            torch=importlib.metadata.version("torch"),
            device="cpu",
            inputs=(*prepared.inputs, *prepared.other_ranks),
            must_raise=prepared.must_raise,
            refused=prepared.refused,
            untried=prepared.untried,
            random=prepared.random,
            eager_seconds=prepared.seconds,
            rows=(row,),
        )
        keep(Tried(name, report, "", round(time.monotonic() - began, 1)))

    try:
        options = CheckOptions(compilers=compilers, jobs=jobs, timeout=SECONDS)
        run_check(requests()[name], options, CheckEvents(prepared=known.append, finished=finished))
    except RecaptureError as failure:
        keep(Tried(name, None, str(failure), round(time.monotonic() - began, 1)))


def in_words(row: CheckRow) -> str:
    """Return the outcome of a cell in a few words: ``right``, ``refuses it``, ``fails loudly on batch=1``."""
    if row.verdict == "error":
        return row.words.removeprefix("error: ").removeprefix("right on the example, ")
    return WORDS.get(row.verdict, row.verdict)


def group_of(row: CheckRow) -> str:
    """Return what a cell is counted as."""
    if row.is_narrow:
        return "right on the example and refusing other inputs loudly"
    groups = {"right": RIGHT, "silently wrong": SILENTLY_WRONG, "refused or failing": FAILING}
    return next((word for word, group in groups.items() if row.verdict in {*map(str, group)}), row.verdict)


def table(tried: list[Tried]) -> str:
    """Return the Markdown table: a row for each model, a column for each compiler, and the outcomes counted."""
    rows = rows_of(tried)
    compilers = list(dict.fromkeys(name for model_rows in rows.values() for name in model_rows))
    lines = []
    for model, model_rows in rows.items():
        reports = [attempt.report for attempt in tried if attempt.model == model and attempt.report is not None]
        inputs = str(len(reports[-1].inputs) + 1) if reports else "–"
        cells = [in_words(model_rows[compiler]) if compiler in model_rows else "" for compiler in compilers]
        lines.append([code_span(model), inputs, *cells])
    heads = ["model", "inputs", *compilers]
    text = table_markdown(Table(heads, lines, "l"))
    counts: Counter[str] = Counter()
    for model_rows in rows.values():
        for row in model_rows.values():
            counts[group_of(row)] += 1
    summed = ", ".join(f"{number} {word}" for word, number in counts.most_common())
    return f"{text}\n\n{len(rows)} models, {sum(counts.values())} cells: {summed}.\n"


def details(tried: list[Tried]) -> str:
    """Return a line for each cell that is not right, with its reason."""
    lines = [
        f"{model} {row.compiler}: {row.words}: {shorten(one_line(row.reason), 200)}"
        for model, model_rows in rows_of(tried).items()
        for row in model_rows.values()
        if row.verdict not in {*map(str, RIGHT), "not_applicable"}
    ]
    answered = {attempt.model for attempt in tried if attempt.report is not None}
    lines += dict.fromkeys(
        f"{attempt.model}: {attempt.error}" for attempt in tried if attempt.error and attempt.model not in answered
    )
    return "\n".join(lines)


@click.command()
@click.option("--records", "file", type=click.Path(path_type=Path), required=True, help="The file of records.")
@click.option("--compiler", "compilers", multiple=True, default=CHEAP)
@click.option("--model", "only_models", multiple=True, help="Only models whose name contains this.")
@click.option("--only", help="One model by its whole name, in this process.")
@click.option("--models-at-once", "at_once", default=1, help="Models that are checked at the same time.")
@click.option("--jobs", default=1, help="Compilers of a model that run at the same time.")
@click.option("--seconds", default=float("inf"), help="Stop after this time; finished cells are kept.")
@click.option("--table", "only_table", is_flag=True, help="Run nothing; print the table.")
@click.option("--details", "only_details", is_flag=True, help="Run nothing; print what is not right.")
def main(
    file: Path,
    compilers: tuple[str, ...],
    only_models: tuple[str, ...],
    only: str | None,
    at_once: int,
    jobs: int,
    seconds: float,
    only_table: bool,
    only_details: bool,
) -> None:
    """Check models that nobody here wrote, and print a table."""
    deadline = time.monotonic() + seconds
    if only_table or only_details:
        print(table(read_lines(file, Tried)) if only_table else details(read_lines(file, Tried)))
        return
    if only is not None:
        check_one(file, only, compilers, jobs)
        return
    known = rows_of(read_lines(file, Tried))
    parts = {}
    for name in requests():
        left = [compiler for compiler in compilers if compiler not in known.get(name, {})]
        if left and (not only_models or any(part in name for part in only_models)):
            options = [word for compiler in left for word in ("--compiler", compiler)]
            parts[name] = ["--records", str(file), "--only", name, "--jobs", str(jobs), *options]
    left = run_parts("benchmarks.own_models", parts, at_once, deadline)
    if left:
        print(f"not finished: {', '.join(left)}")
    print(table(read_lines(file, Tried)))


if __name__ == "__main__":
    main()
