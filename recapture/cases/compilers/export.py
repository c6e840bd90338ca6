"""`torch.export` and what is built on it: AOTInductor and the ONNX exporter.

``export``, ``export:dynamic`` and ``aoti`` with its variants make the release's own default call, which is strict
before torch 2.8 and not strict from 2.8 on. ``export:strict`` and ``export:nonstrict`` name the mode. All of them run
on every release, so that a name means one call everywhere and each has a whole history: on each release one of the two
named forms makes the same call as ``export``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from recapture.cases.compiler import Family, compiler

if TYPE_CHECKING:
    from collections.abc import Iterator


def as_module(fn: Any) -> Any:
    """Wrap a function as the `nn.Module` that `torch.export` insists on."""
    import torch

    if isinstance(fn, torch.nn.Module):
        return fn

    class Function(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *args: Any) -> Any:
            return fn(*args)

    return Function()


def exported_module(program: Any) -> Any:
    """Return the callable of an exported program; 2.1's own call checks inputs, its ``module()`` does not."""
    import torch

    return program if torch.__version__.startswith("2.1.") else program.module()


def dynamic_shapes(module: Any, example: Any, held_out: Any) -> Any:
    """Return `torch.export`'s ``dynamic_shapes``: what differs between the example and a held-out input is dynamic.

    Held-out inputs of another rank, or with other containers, say nothing about the place where they differ. Values of
    arguments other than tensors and integers stay constants.
    """
    import inspect

    sizes = Sizes()
    places = zip(example, *(args for args in held_out if len(args) == len(example)))  # noqa: B905 - of one length
    shapes = [sizes.of(*values) for values in places]
    return tuple(inspect.signature(module.forward).bind(*shapes).arguments.values())  # ``*args`` is a tuple of its own


class Sizes:
    """The dynamic sizes of one program.

    Where the release has `Dim.AUTO`, torch narrows a size, or makes it static, as the code demands. On older releases
    sizes have names: those that agree in every input share one, because the code may need them equal.
    """

    def __init__(self) -> None:
        self.named: dict[tuple[int, ...], Any] = {}

    def of(self, first: Any, *others: Any) -> Any:
        """Return the entry of ``dynamic_shapes`` for what is at one place of the example and of the held-out inputs."""
        import torch
        from torch.utils import _pytree as pytree

        if isinstance(first, torch.Tensor):
            ranks = [other for other in others if isinstance(other, torch.Tensor) and other.dim() == first.dim()]
            places = enumerate(zip(first.shape, *(other.shape for other in ranks)))  # noqa: B905 - of one rank
            return {place: self.size(*sizes) for place, sizes in places if len(set(sizes)) > 1} or None
        if type(first) is int:  # a bool is no size
            numbers = (first, *(other for other in others if type(other) is int))
            release = tuple(int(part) for part in torch.__version__.split(".")[:2])
            return self.size(*numbers) if len(set(numbers)) > 1 and release >= (2, 8) else None
        children, node = one_level(first)
        if len(children) == 1 and children[0] is first:
            return None
        flat = [one_level(other) for other in others]
        # By text: the classes of the held-out inputs are of another execution of the case's file.
        alike = [parts for parts, other in flat if str(other) == str(node)]
        shapes = [self.of(*parts) for parts in zip(children, *alike)]  # noqa: B905 - of one structure
        known = isinstance(first, (tuple, list, dict))
        return pytree.tree_unflatten(shapes, node) if known else shapes  # torch wants other classes as a list

    def size(self, *sizes: int) -> Any:
        """Return the dynamic size that has these values in the example and in the held-out inputs."""
        import torch

        if hasattr(torch.export.Dim, "AUTO"):
            return torch.export.Dim.AUTO
        if sizes not in self.named:
            # torch 2.2 to 2.5 specialise on 0 and 1, and want a range above.
            least = {"min": min(sizes)} if min(sizes) > 1 else {}
            most = {"max": max(sizes)} if max(sizes) > 2 else {}
            self.named[sizes] = torch.export.Dim(f"size{len(self.named)}", **least, **most)
        return self.named[sizes]


def one_level(value: Any) -> tuple[list[Any], Any]:
    """Return what a container holds, and its structure with leaves in their places; the value itself if it is none."""
    import inspect

    from torch.utils import _pytree as pytree

    if "is_leaf" in inspect.signature(pytree.tree_flatten).parameters:
        children, spec = pytree.tree_flatten(value, is_leaf=lambda inner: inner is not value)
        return children, spec
    leaves, spec = pytree.tree_flatten(value)  # torch 2.2
    if isinstance(spec, pytree.LeafSpec):
        return [value], spec
    children = []
    for part in spec.children_specs:
        children.append(pytree.tree_unflatten(leaves[: part.num_leaves], part))
        leaves = leaves[part.num_leaves :]
    return children, pytree.TreeSpec(spec.type, spec.context, [pytree.LeafSpec() for _ in children])


# Strict export runs on Dynamo, and so does the default before 2.8. A program is one graph: there is nothing to count.
@compiler(
    "export",
    family=Family.EXPORT,
    also_called=("torch.export",),
    share_passing=0.32,
    run_by=("check", "pytest", "generate"),
    since="2.1",
    shares_state=False,
    fixed_ranks=True,
)
def export(fn: Any, example: Any) -> Any:
    """`torch.export.export` as the release calls it by default: strict before 2.8, not strict from 2.8 on."""
    import torch

    return exported_module(torch.export.export(as_module(fn), example))


@compiler(
    "export:strict",
    family=Family.EXPORT,
    share_passing=0.23,
    arguments={"strict": True},
    run_by=("check",),
    since="2.1",
    uses_dynamo=True,
    shares_state=False,
    fixed_ranks=True,
)
def export_strict(fn: Any, example: Any) -> Any:
    """`torch.export.export(strict=True)`: one graph captured by Dynamo, or a refusal."""
    import torch

    options = {} if torch.__version__.startswith("2.1.") else {"strict": True}  # 2.1 knows nothing else
    return exported_module(torch.export.export(as_module(fn), example, **options))


@compiler(
    "export:nonstrict",
    family=Family.EXPORT,
    share_passing=0.32,
    arguments={"strict": False},
    since="2.2",
    shares_state=False,
    fixed_ranks=True,
)
def export_nonstrict(fn: Any, example: Any) -> Any:
    """`torch.export.export(strict=False)`: the Python code runs once on fake tensors."""
    import torch

    return exported_module(torch.export.export(as_module(fn), example, strict=False))


@compiler(
    "export:dynamic",
    family=Family.EXPORT,
    share_passing=0.42,
    run_by=("check",),
    since="2.2",
    shares_state=False,
    sees_held_out=True,
    fixed_ranks=True,
)
def export_dynamic(fn: Any, example: Any, held_out: Any = ()) -> Any:
    """`torch.export.export` by default, dynamic where the sizes of held-out inputs differ."""
    import torch

    module = as_module(fn)
    shapes = dynamic_shapes(module, example, held_out)
    return torch.export.export(module, example, dynamic_shapes=shapes).module()


@compiler(
    "aoti",
    family=Family.AOTI,
    also_called=("aot_inductor", "aotinductor"),
    run_by=("check", "bench"),
    since="2.6",
    generates_code=True,
    shares_state=False,
    checks_inputs=False,
    inference_only=True,
    fixed_ranks=True,
)
def aoti(fn: Any, example: Any) -> Any:
    """AOTInductor: exported, compiled to a shared library, loaded without Python; checks nothing about its inputs."""
    import torch

    program = torch.export.export(as_module(fn), example)
    inductor = torch._inductor  # noqa: SLF001 - where torch's own documentation has it
    return inductor.aoti_load_package(inductor.aoti_compile_and_package(program))


@compiler(
    "aoti:dynamic",
    family=Family.AOTI,
    since="2.6",
    generates_code=True,
    shares_state=False,
    checks_inputs=False,
    inference_only=True,
    sees_held_out=True,
    fixed_ranks=True,
    optional=True,  # as costly as `aoti`, and the same program where no size differs
)
def aoti_dynamic(fn: Any, example: Any, held_out: Any = ()) -> Any:
    """AOTInductor, dynamic where the sizes of held-out inputs differ."""
    import torch

    module = as_module(fn)
    program = torch.export.export(module, example, dynamic_shapes=dynamic_shapes(module, example, held_out))
    inductor = torch._inductor  # noqa: SLF001 - where torch's own documentation has it
    return inductor.aoti_load_package(inductor.aoti_compile_and_package(program))


# Its checks have holes: of two sizes that export made equal, torch 2.11 checks one. It may still read other memory.
@compiler(
    "aoti:checked",
    family=Family.AOTI,
    since="2.7",
    generates_code=True,
    shares_state=False,
    checks_inputs=False,
    inference_only=True,
    fixed_ranks=True,
    optional=True,  # as costly as `aoti`, and the same program
)
def aoti_checked(fn: Any, example: Any) -> Any:
    """AOTInductor with its own checks of inputs at run time, `AOTI_RUNTIME_CHECK_INPUTS=1`."""
    import os

    import torch

    program = torch.export.export(as_module(fn), example)
    inductor = torch._inductor  # noqa: SLF001 - where torch's own documentation has it
    package = inductor.aoti_load_package(inductor.aoti_compile_and_package(program))

    def call(*args: Any) -> Any:
        # A library reads the variable at its first call. It is set during calls alone: the case may use it too.
        before = os.environ.get("AOTI_RUNTIME_CHECK_INPUTS")
        os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = "1"
        try:
            return package(*args)
        finally:
            os.environ.pop("AOTI_RUNTIME_CHECK_INPUTS")
            if before is not None:
                os.environ["AOTI_RUNTIME_CHECK_INPUTS"] = before

    return call


@compiler(
    "onnx",
    family=Family.ONNX,
    run_by=("check",),
    since="2.6",
    requires=("onnx", "onnxscript", "onnxruntime"),
    shares_state=False,
    inference_only=True,
    fixed_ranks=True,
)
def onnx(fn: Any, example: Any) -> Any:
    """`torch.onnx.export(dynamo=True)`, run by ONNX Runtime on the CPU."""
    import torch

    from recapture.torch_api.compat import pytree

    program = torch.onnx.export(as_module(fn), example, dynamo=True, verbose=False)
    exported = program.exported_program
    outputs = [spec.arg for spec in exported.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    values = {node.name: node.meta.get("val") for node in exported.graph.nodes}

    def on_cpu(leaf: Any) -> Any:
        return leaf.to("cpu") if isinstance(leaf, torch.Tensor) else leaf

    def placed(name: str, results: Iterator[Any]) -> Any:
        result, exported_value = next(results), values.get(name)
        if isinstance(result, torch.Tensor) and isinstance(exported_value, torch.Tensor):
            return result.to(exported_value.device)
        return result

    def call(*args: Any) -> Any:
        # ONNX has a flat list of tensors, and no devices; constants, containers and the devices of the results are
        # known from the exported program alone.
        results = iter(program(*pytree().tree_map(on_cpu, args)))
        leaves = [
            output.value if type(output).__name__ == "ConstantArgument" else placed(output.name, results)
            for output in outputs
        ]
        return pytree().tree_unflatten(leaves, exported.call_spec.out_spec)

    return call
