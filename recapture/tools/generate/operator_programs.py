"""Programs from torch's own samples of an operator: each sample in several forms, as the text of a suite file.

This runs in a child of a server that has imported torch's samples. What it writes needs torch alone, on any release.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec

from recapture.tools.generate.literals import UnwritableError, source_of, tensor_source
from recapture.tools.generate.suite_files import GeneratedSuite, MadeProgram, refusal, short, suite_text
from recapture.torch_api.compat import seed_everything, tree_leaves
from recapture.torch_api.operator_samples import (
    OperatorSample,
    excused_tests,
    in_place_name,
    own_result,
    quiet_samples,
    returns_unwritten,
    sampled_dtype,
    samples_of,
)

FORMS = {
    "function": "the operator, called as torch's tests call it",
    "in_place": "the method that writes the result into the first argument",
    "out": "the result is written into an argument, `out=`",
    "strided": "every tensor is a view with a step and an offset",
    "backward": "the tensors require a gradient, and a backward follows",
    "twice": "called twice, and the first argument is changed in between",
    "strided_in_place": "in place, and the tensors are views with a step and an offset",
    "strided_out": "`out=`, and all tensors are views with a step and an offset",
}
"""The forms of a program, each with its meaning, in the order of the reports."""

SPELLINGS = {
    "einsum": "torch.einsum({1}, {0})",
    "where": "torch.where({1}, {0}, {2})",
    "polygamma": "torch.polygamma({1}, {0})",
    "special.polygamma": "torch.special.polygamma({1}, {0})",
}
"""Calls of the operators whose arguments torch's tests pass in another order, with a place for each argument."""

HELPERS = {
    "strided": '''def strided(tensors):
    """Return the tensors as views with a step and an offset."""
    return tuple(tensor.repeat_interleave(2, -1)[..., 1::2] if tensor.dim() else tensor for tensor in tensors)''',
    "differentiable": '''def differentiable(tensors, *places):
    """Return the tensors; those at some places require a gradient."""
    return tuple(tensor.requires_grad_(place in places) for place, tensor in enumerate(tensors))''',
}
"""Functions of the written files, by name; a file has those that it uses."""


class OperatorRequest(msgspec.Struct, frozen=True):
    """What is to be made of one operator: at most so many samples, each in these forms."""

    operator: str
    device: str
    dtype: str
    seed: int
    samples: int
    forms: tuple[str, ...]

    @property
    def subject(self) -> str:
        """The operator."""
        return self.operator

    @property
    def name(self) -> str:
        """The name of its suite."""
        return "op_" + re.sub(r"\W+", "_", self.operator)


@dataclass(frozen=True)
class WrittenSample:
    """A sample as text: each tensor has a name, and `call` is the operator's call with these names."""

    call: str
    first: str
    others: str
    """The arguments after the first, as a method is called with them."""
    tensors: dict[str, Any]
    unwritten: bool
    """Whether the result is memory that nothing has written, of which only shape, dtype and strides can be judged."""

    @property
    def structure(self) -> tuple[Any, ...]:
        """What two samples share that one captured program can take."""
        tensors = self.tensors.values()
        return self.call, self.others, *((value.dtype, value.shape, value.stride()) for value in tensors)


def make_suite(entry: Any, request: OperatorRequest) -> GeneratedSuite:
    """Return the programs of an operator."""
    dtype = sampled_dtype(entry, request.device, request.dtype)
    if dtype is None:
        return GeneratedSuite(request.subject, request.name, lacking="it has no dtype on this device")
    programs: list[MadeProgram] = []
    parts: list[str] = []
    with quiet_samples():
        reasons: list[str] = []
        for index, (sample, other, result) in enumerate(_chosen(entry, request, dtype, reasons)):
            inputs = [
                _inputs(f"sample_{index}", sample, 100),
                *([_inputs(f"other_{index}", other, 200)] if other else []),
            ]
            # Where torch's samples do not depend on the seed, there is nothing to hold out.
            held_out = len(inputs) > 1 and inputs[0].split("\n")[1:] != inputs[1].split("\n")[1:]
            parts += inputs if held_out else inputs[:1]
            for form in request.forms:
                text = _text(form, index, entry, sample, result, held_out=held_out)
                if text is None:
                    continue
                why = refusal(_file("", [*inputs, text]))
                programs.append(MadeProgram(f"{form}_{index}", form, why, unwritten=sample.unwritten))
                parts += [text] if why is None else []
    taken = any(program.refused is None for program in programs)
    head = f'"""Torch\'s samples of `{request.operator}` as programs, seed {request.seed}."""\n\n'
    return GeneratedSuite(
        subject=request.subject,
        name=request.name,
        dtype=str(dtype).removeprefix("torch."),
        text=_file(head, parts) if taken else "",
        programs=tuple(programs),
        excused=tuple(excused_tests(entry, request.device, dtype)),
        lacking=None if programs else next(iter(reasons), "there is no sample"),
    )


def _chosen(
    entry: Any, request: OperatorRequest, dtype: Any, reasons: list[str]
) -> Iterator[tuple[WrittenSample, WrittenSample | None, Any]]:
    """Yield the samples to use, the same with other values, and the result; append why others are not used."""
    drawn = []
    for seed in (request.seed, request.seed + 1):
        seed_everything(seed)
        try:
            drawn.append(list(samples_of(entry, request.device, dtype)))
        except Exception as error:  # some samples need what is not installed
            reasons.append(f"no samples: {short(error)}")
            return
    pairs = list(zip_longest(*drawn))
    random.Random(f"{request.seed}/{request.operator}").shuffle(pairs)  # noqa: S311 - no secret
    structures: set[tuple[Any, ...]] = set()
    for sample, other in pairs:
        if len(structures) == request.samples:
            return
        as_source = None if sample is None else _written(entry, sample, reasons)
        if as_source is None or as_source[0].structure in structures:
            continue
        structures.add(as_source[0].structure)
        held_out = None if other is None else _written(entry, other, [])
        alike = held_out is not None and held_out[0].structure == as_source[0].structure
        yield as_source[0], held_out[0] if held_out is not None and alike else None, as_source[1]


def _written(entry: Any, sample: OperatorSample, reasons: list[str]) -> tuple[WrittenSample, Any] | None:
    """Return a sample as text, with the operator's result; None, with a reason, if there is no such text."""
    tensors: dict[str, Any] = {}

    def named(tensor: Any) -> str:
        name = f"t{len(tensors)}"
        tensors[name] = tensor
        return name

    try:
        arguments = [source_of(value, named) for value in (sample.input, *sample.args)]
        options = [f"{name}={source_of(value, named)}" for name, value in sample.kwargs.items()]
        for index, tensor in enumerate(tensors.values()):
            tensor_source(tensor, index)
        seed_everything()
        result = own_result(entry, sample)
    except UnwritableError as error:
        reasons.append(f"a sample cannot be written: {error}")
        return None
    except Exception as error:
        reasons.append(f"a sample is refused: {short(error)}")
        return None
    for call in _spellings(entry.name, arguments, options):
        if _gives_alike(call, tensors, result):
            others = ", ".join([*arguments[1:], *options])
            return WrittenSample(call, arguments[0], others, tensors, returns_unwritten(entry, sample)), result
    reasons.append("no public call gives what its tests compare")
    return None


def _spellings(name: str, arguments: list[str], options: list[str]) -> Iterator[str]:
    """Yield the calls by which a program may use an operator: a function of torch, a method, an attribute."""
    first, *others = arguments
    if name in SPELLINGS and len(arguments) > SPELLINGS[name].count("{") - 1:
        yield SPELLINGS[name].format(*arguments)
    yield f"torch.{name}({', '.join([*arguments, *options])})"
    yield f"{first}.{name}({', '.join([*others, *options])})"
    if not others and not options:
        yield f"{first}.{name}"


def _gives_alike(call: str, tensors: dict[str, Any], result: Any) -> bool:
    """Whether a call gives tensors of the same shapes and dtypes as a result, or an equal value."""
    from math import inf, nan

    import torch

    seed_everything()
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    try:
        repeated = eval(call, {"torch": torch, "inf": inf, "nan": nan}, copies)  # noqa: S307 - written above
    except Exception:
        return False
    return _forms_of(repeated) == _forms_of(result)


def _forms_of(result: Any) -> list[Any]:
    import torch

    return [(leaf.shape, leaf.dtype) if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in tree_leaves(result)]


def _text(form: str, index: int, entry: Any, sample: WrittenSample, result: Any, *, held_out: bool) -> str | None:
    """Return the source of one program as a case; None if the form does not apply to the sample."""
    strided = form.startswith("strided")
    if strided and not any(tensor.dim() for tensor in sample.tensors.values()):
        return None
    extra: dict[str, str] = {}
    zeroed = ".zero_()" * sample.unwritten
    body = [f"return {sample.call}{zeroed}"]
    if form.endswith("in_place"):
        method = in_place_name(entry)
        if method is None or sample.first not in sample.tensors:
            return None
        body = [f"return {sample.first}.{method}({sample.others}){zeroed}"]
    elif form.endswith("out"):
        extra = _outputs(result) if entry.supports_out else {}
        if not extra:
            return None
        outputs = ", ".join(extra)
        body = [f"return {sample.call.removesuffix(')')}, out={outputs if len(extra) == 1 else f'({outputs})'})"]
    elif form == "twice":
        if not sample.tensors:
            return None
        change = "logical_not_()" if str(sample.tensors["t0"].dtype) == "torch.bool" else "mul_(2)"
        body = [
            f"first = {sample.call}{zeroed}",
            f"t0.{change}",
            f"second = {sample.call}{zeroed}",
            "return first, second",
        ]
    places = [place for place, tensor in enumerate(sample.tensors.values()) if tensor.requires_grad]
    if form == "backward" and not places:
        return None

    def made_by(inputs: str) -> str:
        arguments = f"(*{inputs}(), {', '.join(extra.values())})" if extra else f"{inputs}()"
        if form == "backward":
            return f"lambda: differentiable({', '.join([arguments, *map(str, places)])})"
        return f"lambda: strided({arguments})" if strided else f"lambda: {arguments}" if extra else inputs

    lines = ["@case(", f"    example={made_by(f'sample_{index}')},"]
    lines += [f"    held_out=[{made_by(f'other_{index}')}],"] if held_out else []
    lines += [")", f"def {form}_{index}({', '.join([*sample.tensors, *extra])}):"]
    lines += [f'    """{FORMS[form].capitalize()}."""', *(f"    {line}" for line in body)]
    return "\n".join(lines)


def _inputs(name: str, sample: WrittenSample, seed: int) -> str:
    """Return the source of a function that makes the tensors of a sample."""
    sources = [tensor_source(tensor, seed + place) for place, tensor in enumerate(sample.tensors.values())]
    return "\n".join([f"def {name}():", "    return (", *(f"        {source}," for source in sources), "    )"])


def _outputs(result: Any) -> dict[str, str]:
    """Return the source of the tensors that `out=` is given; none if the result is something else."""
    import torch

    tensors = [result] if isinstance(result, torch.Tensor) else list(result) if isinstance(result, tuple) else []
    if not all(isinstance(tensor, torch.Tensor) for tensor in tensors):
        return {}
    names = ["out"] if len(tensors) == 1 else [f"out{index}" for index in range(len(tensors))]
    return {
        name: f"torch.full({tuple(tensor.shape)}, {tensor.dtype.is_floating_point * 7 or 1}, dtype={tensor.dtype})"
        for name, tensor in zip(names, tensors, strict=True)
    }


def _file(head: str, parts: list[str]) -> str:
    """Return the source of a file with some functions and cases, with what they need before them."""
    used = [text for name, text in HELPERS.items() if any(f"{name}(" in part for part in parts)]
    body = [*used, *parts]
    names = [name for name in ("inf", "nan") if any(re.search(rf"\b{name}\b", part) for part in body)]
    math = f"from math import {', '.join(names)}\n\n" if names else ""
    return suite_text(f"{head}{math}import torch\n\nfrom recapture import case\n", body)
