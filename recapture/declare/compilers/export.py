"""`torch.export` and what is built on it: AOTInductor and the ONNX exporter."""

from __future__ import annotations

from typing import Any

from recapture.declare.compiler import compiler


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


@compiler("export", since="2.1", uses_dynamo=True, shares_state=False)
def export_strict(fn: Any, example: Any) -> Any:
    """`torch.export.export(strict=True)`: one graph captured by Dynamo, or a refusal."""
    import torch

    options = {} if torch.__version__.startswith("2.1.") else {"strict": True}  # 2.1 knows nothing else
    return exported_module(torch.export.export(as_module(fn), example, **options))


@compiler("export:nonstrict", since="2.2", shares_state=False)
def export_nonstrict(fn: Any, example: Any) -> Any:
    """`torch.export.export(strict=False)`: the Python code runs once on fake tensors."""
    import torch

    return exported_module(torch.export.export(as_module(fn), example, strict=False))


@compiler("aoti", since="2.6", generates_code=True, shares_state=False, checks_inputs=False, inference_only=True)
def aoti(fn: Any, example: Any) -> Any:
    """AOTInductor: exported, compiled to a shared library, loaded without Python; checks nothing about its inputs."""
    import torch

    program = torch.export.export(as_module(fn), example)
    inductor = torch._inductor  # noqa: SLF001 - where torch's own documentation has it
    return inductor.aoti_load_package(inductor.aoti_compile_and_package(program))


@compiler(
    "onnx",
    since="2.6",
    requires=("onnx", "onnxscript", "onnxruntime"),
    shares_state=False,
    inference_only=True,
    optional=True,
)
def onnx(fn: Any, example: Any) -> Any:
    """`torch.onnx.export(dynamo=True)`, run by ONNX Runtime on the CPU."""
    import torch

    from recapture.base.torch_compat import pytree

    program = torch.onnx.export(as_module(fn), example, dynamo=True, verbose=False)
    exported = program.exported_program
    outputs = [spec.arg for spec in exported.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    tensors = [leaf for leaf in pytree().tree_leaves(example) if isinstance(leaf, torch.Tensor)]
    device = tensors[0].device if tensors else torch.device("cpu")

    def on(place: Any) -> Any:
        return lambda leaf: leaf.to(place) if isinstance(leaf, torch.Tensor) else leaf

    def call(*args: Any) -> Any:
        # ONNX has a flat list of tensors; constants and containers are known from the exported program alone.
        results = iter(program(*pytree().tree_map(on("cpu"), args)))
        leaves = [one.value if type(one).__name__ == "ConstantArgument" else next(results) for one in outputs]
        return pytree().tree_map(on(device), pytree().tree_unflatten(leaves, exported.call_spec.out_spec))

    return call
