"""The options of ``recapture generate``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.option_fields import WEEK, option
from recapture.run.cell_options import CellOptions
from recapture.tools.generate.constructs import CONSTRUCTS
from recapture.tools.generate.operator_programs import FORMS

DTYPES = ("float32", "float64", "float16", "bfloat16", "complex64", "complex128", "int64", "int32", "int8", "bool")
"""The dtypes that samples can be asked for."""


def _known_form(name: str) -> str:
    if name not in FORMS:
        raise UsageError(f"unknown form {name!r}{did_you_mean(name, FORMS)}; the forms are {', '.join(FORMS)}")
    return name


def _known_step(name: str) -> str:
    names = [construct.name for construct in CONSTRUCTS]
    if name not in names:
        raise UsageError(f"unknown step {name!r}{did_you_mean(name, names)}; the steps are {', '.join(names)}")
    return name


def _known_dtype(name: str) -> str:
    if name not in DTYPES:
        raise UsageError(f"unknown dtype {name!r}{did_you_mean(name, DTYPES)}; it is one of {', '.join(DTYPES)}")
    return name


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(CellOptions):
    """The options of `recapture generate`."""

    results: Path = option("--results", default=Path("generated"), help="Folder of the programs and the findings.")
    seed: int = option("--seed", default=0, between=(0, 1 << 31), help="What decides the samples, and so the programs.")
    source: Literal["operators", "python"] = option(
        "--source", default="operators", help="Torch's samples of its operators, or programs of operators and Python."
    )
    programs: int = option(
        "--programs", default=200, between=(1, 1_000_000), help="Programs of Python, each in two spellings."
    )
    without: tuple[str, ...] = option(
        "--without",
        default=(),
        metavar="STEP",
        parse=_known_step,
        help="Programs of Python without this step, such as one with a known fault; may be given several times.",
    )
    minutes: float | None = option(
        "--minutes", default=None, between=(0.05, WEEK / 60), metavar="M", help="Begin no cell after M minutes."
    )
    operators: tuple[str, ...] = option(
        "--operator", default=(), metavar="NAME", help="Only this operator of torch; may be given several times."
    )
    forms: tuple[str, ...] = option(
        "--form", default=(), metavar="NAME", parse=_known_form, help="Only this form; may be given several times."
    )
    samples: int = option("--samples", default=2, between=(1, 20), help="Samples of each operator.")
    dtype: str = option(
        "--dtype",
        default="float32",
        metavar="NAME",
        parse=_known_dtype,
        help="The dtype of the samples, where an operator has it.",
    )
    compilers_from: Path | None = option(
        "--compilers-from", default=None, metavar="FILE", help="The compilers that this file declares, instead."
    )
    settings: int | None = option(
        "--settings",
        default=None,
        between=(1, 200),
        metavar="N",
        help="Compile with N of Inductor's settings changed, each alone: none may change a result.",
    )
    alone: int = option(
        "--alone",
        default=2,
        between=(0, 1000),
        metavar="N",
        help="Members of a family that run again in processes of their own, for each compiler.",
    )
    findings: int = option(
        "--findings",
        default=10,
        between=(0, 1000),
        metavar="N",
        help="Work out at most N of the families that are new.",
    )
    seconds: float = option(
        "--seconds", default=60.0, between=(0.0, WEEK), metavar="S", help="Time limit of the reduction of a finding."
    )
    across: str | None = option(
        "--across", default=None, metavar="RELEASE[,RELEASE…]", help="Also run findings on these, oldest first."
    )
    until: int | None = option(
        "--until", default=None, between=(1, 1_000_000), metavar="N", help="Begin no cell after N that are not right."
    )
    timeout: float = option("--timeout", default=60.0, between=(0.1, WEEK), help="Seconds per cell.")
