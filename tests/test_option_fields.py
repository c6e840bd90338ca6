"""One declaration of an option gives the command line's parameter and the typed field."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

import click
import pytest

from recapture.base.errors import UsageError
from recapture.base.option_fields import GIB, argument, declared, known_device, option
from recapture.command.images import images
from recapture.command.options import takes
from recapture.command.run import run_command
from recapture.images.build import BuildOptions
from recapture.images.container import ContainerOptions
from recapture.images.engine import EngineOptions
from recapture.run.plan import RunOptions
from recapture.tools.speed.bench_command import bench_command
from recapture.tools.speed.selection import BenchOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sample:
    what: tuple[str, ...] = argument("[WHAT]...")
    word: str | None = option("-w", "--word", default=None, help="A word.")
    often: tuple[int, ...] = option("--often", default=(), parse=int)
    names: tuple[str, ...] = option("--names", default=(), commas=True)
    flag: bool = option("--flag", default=False)
    count: int = option("--count", default_factory=lambda: 7, between=(1, None))
    seconds: float = option("--seconds", default=2.5, between=(0.1, 10.0))
    memory: int = option("--memory", default=8 * GIB, unit=GIB, between=(0.5, 16.0))
    limit: int | None = option("--limit", default=None, unit=GIB)
    kind: Literal["a", "b"] = option("--kind", default="a")
    place: Path = option("--place", default=Path("here"))
    device: str = option("--device", default="cpu", parse=known_device)
    inner: int = 3


def parse(*words):
    calls = []

    @click.command()
    @takes(options=Sample)
    @click.option("--beside", is_flag=True)
    def command(options, *, beside):
        calls.append((options, beside))

    command.main(list(words), standalone_mode=False)
    ((options, beside),) = calls
    return options, beside


def test_without_options_every_field_has_its_declared_default():
    assert parse() == (Sample(what=()), False)
    assert Sample(what=()).count == 7


def test_every_kind_of_field_is_read_from_the_command_line():
    words = "x y -w z --often 1 --often 2 --flag --count 2 --seconds 0.5 --memory 1.5 --limit 2 --kind b --place there"
    assert parse(*words.split(), "--device", "cuda", "--beside") == (
        Sample(
            what=("x", "y"),
            word="z",
            often=(1, 2),
            flag=True,
            count=2,
            seconds=0.5,
            memory=GIB * 3 // 2,
            limit=2 * GIB,
            kind="b",
            place=Path("there"),
            device="cuda",
        ),
        True,
    )


def test_commas_divide_the_values_of_an_option_that_may_be_repeated():
    assert parse("--names", "a, b", "--names", "c")[0].names == ("a", "b", "c")
    assert parse("--names", "")[0].names == ("",)  # a name that does not exist, and not the default
    assert parse("--often", "1", "--word", "a,b")[0].word == "a,b"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--count 0", click.BadParameter),
        ("--count 1.5", click.BadParameter),
        ("--seconds nan", click.BadParameter),
        ("--seconds 11", click.BadParameter),
        ("--memory 0.1", click.BadParameter),
        ("--kind c", click.BadParameter),
        ("--often x", UsageError),
        ("--device gpu", UsageError),
        ("--inner 4", click.NoSuchOption),
    ],
)
def test_what_a_declaration_does_not_allow_is_bad_usage(words, error):
    with pytest.raises(error):
        parse(*words.split())


@pytest.mark.parametrize(
    ("command", "options"),
    [
        (run_command, [RunOptions]),
        (bench_command, [BenchOptions]),
        (images.commands["run"], [ContainerOptions, EngineOptions]),
        (images.commands["build"], [BuildOptions, EngineOptions]),
    ],
)
def test_a_command_has_one_parameter_for_each_declared_field(command, options):
    names = [parameter.name for parameter in command.params]
    assert len(names) == len(set(names))
    assert {name for declaration in options for name in declared(declaration)} <= set(names)
    spelled = [word for parameter in command.params for word in parameter.opts]
    assert len(spelled) == len(set(spelled))
