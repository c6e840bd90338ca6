"""The sources of workloads: a file that declares them, or a model named on the command line."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.cases.collection import execute
from recapture.cases.source import closure
from recapture.cases.workload import WORKLOADS_ATTRIBUTE, Workload, WorkloadError
from recapture.torch_api.compat import tree_leaves

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_SHAPE = "8x3x224x224"
"""Default shape of a torchvision model's input."""

_SPEC = re.compile(r"(?P<module>[A-Za-z_][\w.]*):(?P<factory>[A-Za-z_]\w*)")


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Identifies a workload: `name` in the file `path`, or `model` (``torchvision:NAME``, ``package.module:factory``).

    For a named model, `shapes` are the shapes of its inputs, and `train` makes an iteration a training step. The
    workload's name includes both, as in ``torchvision:resnet18 8x3x224x224 train``. If the model is itself a declared
    workload, neither is allowed.
    """

    name: str
    path: str | None = None
    model: str | None = None
    shapes: tuple[tuple[int, ...], ...] = ()
    train: bool = False


class WorkloadInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a workload that the host can use without importing torch; `error` describes a faulty file.

    `hash` covers the workload's source, like a case's; None for torchvision's models. `compilers` has the hash of each
    compiler that the file declares.
    """

    spec: ModelSpec
    summary: str = ""
    dtype: str = "fp32"
    devices: tuple[str, ...] = ()
    compilers: dict[str, str] = {}
    claims: dict[str, list[tuple[str, str, str]]] = {}
    trains: bool = False
    hash: str | None = None
    error: str | None = None


def shapes_of(text: str) -> tuple[int, ...]:
    """Parse a shape such as ``8x3x224x224``; raises ValueError for anything else."""
    if not re.fullmatch(r"[1-9]\d*(x[1-9]\d*)*", text):
        raise ValueError(f"a shape is written as {DEFAULT_SHAPE}, not {text!r}")
    return tuple(int(part) for part in text.split("x"))


def load_workload(spec: ModelSpec) -> Workload:
    """Return the workload that a spec identifies.

    Raises WorkloadError, in one line, if it does not exist. Errors from a user's file propagate.
    """
    if spec.path is not None:
        module = execute(f"workloads_{Path(spec.path).stem}", Path(spec.path))
        workloads: list[Workload] = getattr(module, WORKLOADS_ATTRIBUTE, [])
        for workload in workloads:
            if workload.name == spec.name:
                return workload
        raise WorkloadError(f"no workload {spec.name!r} in {Path(spec.path).name}")
    return _named_model(spec)


def _named_model(spec: ModelSpec) -> Workload:
    import torch

    model = str(spec.model)
    build = _factory(model)
    if isinstance(build, Workload):
        if spec.shapes or spec.train:
            option = "--input" if spec.shapes else "--train"
            raise WorkloadError(f"{model!r} is a workload and declares what an iteration is: {option} is not for it")
        return dataclasses.replace(build, name=model)
    shapes = spec.shapes or (shapes_of(DEFAULT_SHAPE),)
    shape_texts = ["x".join(map(str, shape)) for shape in shapes]

    def mean_square(output: Any) -> Any:

        leaves = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
        return sum((leaf.float() ** 2).mean() for leaf in leaves if leaf.is_floating_point())

    return Workload(
        name=" ".join([model, *shape_texts, *(["train"] if spec.train else [])]),
        build=build,
        inputs=lambda: tuple(torch.randn(shape) for shape in shapes),
        loss=mean_square if spec.train else None,
        optimizer=(lambda parameters: torch.optim.SGD(parameters, lr=1e-4)) if spec.train else None,
    )


def _factory(name: str) -> Callable[[], Any] | Workload:
    place, _, factory = name.partition(":")
    if place == "torchvision":
        from torchvision import models

        known = sorted(entry for entry in dir(models) if entry.islower() and callable(getattr(models, entry)))
        if factory not in known:
            from recapture.base.errors import did_you_mean

            raise WorkloadError(f"torchvision has no model {factory!r}{did_you_mean(factory, known)}")
        # Weights are random, so nothing is downloaded; some models would otherwise download a backbone's weights.
        make = getattr(models, factory)
        return lambda: make(weights=None)
    if not _SPEC.fullmatch(name):
        raise WorkloadError(f"a model is named torchvision:NAME or package.module:factory, not {name!r}")
    try:
        module = importlib.import_module(place)
    except ImportError as error:
        raise WorkloadError(f"the module of model {name!r} cannot be imported: {error}") from None
    for entry in getattr(module, WORKLOADS_ATTRIBUTE, []):
        if entry.name == factory and isinstance(entry, Workload):
            return entry
    factory_function = getattr(module, factory, None)
    if not callable(factory_function):
        from recapture.base.errors import did_you_mean

        raise WorkloadError(f"{place} has no factory {factory!r}{did_you_mean(factory, dir(module))}")
    build: Callable[[], Any] = factory_function
    return build


def collect_workloads(spec: ModelSpec) -> list[WorkloadInfo]:
    """Describe the workloads of a file, or a named model; any failure becomes the one-line `error`."""
    from recapture.cases.compilers import compilers_of

    try:
        if spec.path is None:
            workload = load_workload(spec)
            return [_describe(msgspec.structs.replace(spec, name=workload.name), workload, {})]
        module = execute(f"workloads_{Path(spec.path).stem}", Path(spec.path))
        workloads: list[Workload] = getattr(module, WORKLOADS_ATTRIBUTE, [])
        if not workloads:
            raise WorkloadError("no workload is declared in it (decorate a factory with @workload)")
        compilers = {
            name: _hash_of(Path(str(spec.path)), declared.function) for name, declared in compilers_of(module).items()
        }
        return [
            _describe(msgspec.structs.replace(spec, name=declared.name), declared, compilers) for declared in workloads
        ]
    except SyntaxError as error:
        return [WorkloadInfo(spec=spec, error=f"syntax error in line {error.lineno}: {error.msg}")]
    except WorkloadError as error:
        return [WorkloadInfo(spec=spec, error=str(error))]
    except BaseException as error:  # a file may raise anything on import
        text = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        return [WorkloadInfo(spec=spec, error=f"raised {type(error).__name__} on import: {text}")]


def _describe(spec: ModelSpec, workload: Workload, compilers: dict[str, str]) -> WorkloadInfo:
    return WorkloadInfo(
        spec=spec,
        summary=workload.summary,
        dtype=workload.dtype,
        devices=workload.devices,
        compilers=compilers,
        claims={
            how: [(claim.id, claim.expected, claim.published) for claim in claims]
            for how, claims in workload.claims.items()
        },
        trains=workload.trains,
        hash=_hash(spec, workload.build),
    )


def _hash(spec: ModelSpec, build: Callable[[], Any]) -> str | None:
    """Return a hash of the factory and what it uses, or of the whole file if the factory is not at top level."""
    source = spec.path
    if source is None and not str(spec.model).startswith("torchvision:"):
        with contextlib.suppress(TypeError):  # neither a function nor a class
            source = inspect.getsourcefile(build)
    if source is None:
        return None
    return _hash_of(Path(source), build)


def _hash_of(path: Path, function: Callable[..., Any]) -> str:
    try:
        return closure(path, getattr(function, "__qualname__", "")).hash
    except KeyError:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
