r"""Draws functions and modules for a held-out list: at random, so that nobody chooses them by what lint says.

    python -m benchmarks.lint_draw --seed 20261127 > benchmarks/lint_held_out_1.txt
    python -m benchmarks.lint_draw --seed 11 --number 14 --library timm --library kornia \
        > benchmarks/lint_held_out_2.txt

The modules of some libraries are shuffled with the seed. A function or module is taken if eager can call it with inputs
of a small grid, and if no target of the lists that are there has the same source.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import io
import itertools
import pkgutil
import random
import signal
import textwrap
import warnings
from collections.abc import Iterator
from typing import Any

import click
import torch
from torch.utils._pytree import tree_leaves

from benchmarks.lint_targets import LISTS, lines_of, target_at
from recapture.cases.own_code import tensor_from
from recapture.cases.target import parse_input

FOLDERS = {
    "torchvision": ("torchvision.ops", "torchvision.transforms", "torchvision.models", "torchvision.utils"),
    "timm": ("timm.layers", "timm.models", "timm.loss", "timm.utils"),
    "transformers": ("transformers",),
    "kornia": ("kornia",),
    "pytorch_metric_learning": ("pytorch_metric_learning",),
    "segmentation_models_pytorch": ("segmentation_models_pytorch",),
    "torchmetrics": ("torchmetrics.functional",),
}
"""Where targets are looked for. The models of transformers are its largest part."""

SHARES = {"torchvision": 50, "timm": 60, "transformers": 90}
"""How many targets are drawn from each library, unless ``--number`` says it."""

MOST_OF_A_FILE = 3
"""The most targets of one file, so that a long file does not stand for a library."""

TENSORS = ("3x4", "2x4x8", "2x8x4x4", "1x4x4x8", "2x3x8x8", "6", "2x4:int64", "5x4", "2x2x4x4x4")
"""Inputs that are tried for a tensor: all tensors of a call are alike first."""

SECONDS = 3
"""How long one call may take: the check calls eager often."""

MOST_TRIES = 60

CONSTRUCTOR = ("8", "8,8", "8,8,8", "", "8,2", "16,16", "4")
"""Arguments that are tried for the class of a module."""


class TooSlowError(Exception):
    """A call that took too long."""


@contextlib.contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Raise TooSlowError in what takes longer."""

    def stop(*_: object) -> None:
        raise TooSlowError

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def files_of(library: str) -> list[str]:
    """Return the names of the modules of a library."""
    names = []
    for folder in FOLDERS[library]:
        package = importlib.import_module(folder)
        names.append(folder)
        if hasattr(package, "__path__"):
            names += [module.name for module in pkgutil.walk_packages(package.__path__, f"{folder}.", lambda _: None)]
    if library == "transformers":
        models = importlib.import_module("transformers.models").__path__
        for model in pkgutil.iter_modules(models):
            names.append(f"transformers.models.{model.name}.modeling_{model.name}")
    return sorted(set(names))


def definitions(file: str) -> list[tuple[str, Any]]:
    """Return the functions and modules that a file defines, by name; none of one that cannot be imported."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # what a library says is no target
            module = importlib.import_module(file)
    except BaseException:
        return []
    own = {name: value for name, value in vars(module).items() if getattr(value, "__module__", "") == file}
    return sorted(
        (name, value)
        for name, value in own.items()
        if inspect.isfunction(value)
        or (inspect.isclass(value) and issubclass(value, torch.nn.Module) and "forward" in vars(value))
    )


def required(function: Any) -> list[inspect.Parameter]:
    """Return the parameters that a call has to give."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [*inspect.signature(function).parameters.values()]
    return [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty and parameter.kind in kinds and parameter.name != "self"
    ]


def tried(parameter: inspect.Parameter) -> list[str]:
    """Return inputs for a parameter, as after ``--input``; `tensor` stands for each of the grid."""
    text = str(parameter.annotation) if parameter.annotation is not parameter.empty else ""
    if "Tensor" in text or not text:
        named = {"size": "=[4,4]", "dim": "=-1", "eps": "=0.1", "scale": "=0.5"}
        return [named[parameter.name]] if parameter.name in named else ["tensor"]
    if "bool" in text:
        return ["=False"]
    if "ist" in text or "uple" in text or "Sequence" in text:
        return ["=[2,2]", "=[0.5,0.5]"]
    if "int" in text:
        return ["=2", "=1", "=4"]
    return ["=0.5"] if "float" in text else []


def inputs_for(function: Any, call: Any) -> str:
    """Return inputs with which eager gives a tensor; empty if none of the grid do."""
    parameters = required(function)
    if not parameters or len(parameters) > 6:
        return ""
    choices = [tried(parameter) for parameter in parameters]
    if "tensor" not in itertools.chain(*choices):
        return ""
    grids = [[shape] * len(parameters) for shape in TENSORS]
    grids += [[first, *[second] * (len(parameters) - 1)] for first, second in itertools.permutations(TENSORS[:6], 2)]
    combinations = [
        " ".join(shape if word == "tensor" else word for shape, word in zip(grid, words, strict=True))
        for grid in grids
        for words in itertools.product(*choices)
    ]
    for text in combinations[:MOST_TRIES]:
        parsed = [parse_input(word) for word in text.split(" ")]
        torch.manual_seed(0)
        arguments = [ast.literal_eval(word) if isinstance(word, str) else tensor_from(*word) for word in parsed]
        with contextlib.suppress(Exception), torch.no_grad():
            result = call(*arguments)
            leaves = tree_leaves(result)
            if any(isinstance(leaf, torch.Tensor) for leaf in leaves):
                return text
    return ""


def target_of(file: str, name: str, target: Any) -> str:
    """Return the line of a target: its place and its inputs; empty if it cannot be called."""
    if inspect.isfunction(target):
        inputs = inputs_for(target, target)
        return f"{file}:{name} {inputs}" if inputs else ""
    for arguments in CONSTRUCTOR:
        try:
            module = target(*ast.literal_eval(f"[{arguments}]")).eval()
        except Exception:  # noqa: S112 - another constructor
            continue
        if sum(parameter.numel() for parameter in module.parameters()) > 200_000:
            continue
        inputs = inputs_for(target.forward, module)
        if inputs:
            return f"{file}:{name}({arguments}).eval() {inputs}"
    return ""


def source_of(target: Any) -> str:
    """Return the code of a target without its name and docstring: copies of it are one target."""
    owner: Any = target if inspect.isclass(target) else type(target)
    code = target if inspect.isroutine(target) else owner.forward
    tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(code))))
    body = getattr(tree.body[0], "body", [])
    return "\n".join(
        ast.unparse(part) for part in body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
    )


@click.command()
@click.option("--seed", default=20261127, show_default=True)
@click.option("--library", "libraries", multiple=True, type=click.Choice([*FOLDERS]), default=[*SHARES])
@click.option("--number", type=int, help="How many targets are drawn from each library.")
def main(seed: int, libraries: tuple[str, ...], number: int | None) -> None:
    """Print the lines of a list of targets."""
    warnings.simplefilter("ignore")
    known, drawn_sources = set(), set()
    for listed in LISTS.values():
        for place, line in enumerate(lines_of(listed.file), 1):
            if line and not line.startswith("#"):
                known.add(line.split(" ")[0])
                with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
                    drawn_sources.add(source_of(target_at(listed, place)))
    words = [f"--seed {seed}", *(f"--library {name}" for name in libraries)]
    words += [f"--number {number}"] if number else []
    print(f"# Drawn by `python -m benchmarks.lint_draw {' '.join(words)}`; no pattern was written with these.")
    for library in libraries:
        share = number or SHARES[library]
        files = files_of(library)
        random.Random(seed).shuffle(files)  # noqa: S311
        drawn = 0
        for file in files:
            if drawn >= share:
                break
            targets = definitions(file)
            random.Random(f"{seed} {file}").shuffle(targets)  # noqa: S311
            of_file = 0
            for name, target in targets:
                if f"{file}:{name}" in known or of_file >= MOST_OF_A_FILE or drawn >= share:
                    continue
                try:
                    source = source_of(target)
                    with time_limit(SECONDS * 10), contextlib.redirect_stdout(io.StringIO()):
                        line = "" if source in drawn_sources else target_of(file, name, target)
                except Exception:  # noqa: S112 - no source, or too slow
                    continue
                if line:
                    print(line, flush=True)
                    drawn_sources.add(source)
                    of_file += 1
                    drawn += 1


if __name__ == "__main__":
    main()
