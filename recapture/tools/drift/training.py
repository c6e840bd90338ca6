"""Training on one side, step by step: digests of the loss, gradients, parameters, buffers and optimizer state.

Both sides begin with the same weights and see the same inputs. The new side trains again with noise of rounding size in
each operator: what differs by no more than that, rounding explains.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.cases.own_code import TargetError
from recapture.judge.digest import hash_bytes, numbers_of
from recapture.judge.perturbation import perturbed
from recapture.tools.drift.facts import Step, Task
from recapture.tools.drift.training_steps import distance
from recapture.torch_api.compat import seed_everything, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recapture.tools.drift.side import Side

NOISY_RUNS = 3
"""Runs with noise, from which the spread of each tensor comes."""


def train(task: Task, side: Side) -> tuple[tuple[Step, ...], BaseException | None]:
    """Train for the task's steps; return the digests of each, and the exception that ended it, if one did."""
    if not side.is_module:
        raise TargetError("--train needs a torch.nn.Module")
    if task.other is None:
        side.keep_given()
    steps, error = _run(task, side)
    if task.other is None or error is not None:
        return steps, error
    spreads: list[dict[str, float]] = [{} for _ in steps]
    for seed in range(1, NOISY_RUNS + 1):
        with perturbed(seed):
            noisy, _ = _run(task, side)
        for number, (step, other) in enumerate(zip(steps, noisy, strict=False)):
            for name, (_, numbers) in step.tensors.items():
                apart = distance(numbers, other.tensors.get(name, ("", ()))[1])
                spreads[number][name] = max(spreads[number].get(name, 0.0), apart)
    return tuple(
        msgspec.structs.replace(step, spread=spread) for step, spread in zip(steps, spreads, strict=True)
    ), None


def _run(task: Task, side: Side) -> tuple[tuple[Step, ...], BaseException | None]:
    seed_everything()
    module = side.module().to(task.device)
    module.train()
    optimizer = _optimizer(task, module)
    steps: list[Step] = []
    for number in range(task.train):
        try:
            seed_everything()  # the same inputs on both sides, and in each step
            args = side.arguments()
            seed_everything(number + 1)
            loss = _loss(module(*args))
            optimizer.zero_grad()
            loss.backward()
            tensors = dict(_digests("loss", {"": loss}))
            gradients = {name: parameter.grad for name, parameter in module.named_parameters()}
            tensors |= dict(_digests("gradient of ", gradients))
            optimizer.step()
        except Exception as error:
            return tuple(steps), error
        tensors |= dict(_digests("parameter ", dict(module.named_parameters())))
        tensors |= dict(_digests("buffer ", dict(module.named_buffers())))
        tensors |= dict(_digests("optimizer state ", _state(optimizer, module)))
        steps.append(Step(loss=f"{float(loss):.9g}", tensors=tensors))
    return tuple(steps), None


def _optimizer(task: Task, module: Any) -> Any:
    import torch

    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise TargetError("--train needs a module with parameters")
    if task.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=task.rate, momentum=0.9)
    return torch.optim.AdamW(parameters, lr=task.rate)


def _loss(result: Any) -> Any:
    """Return the result if it is a number, else the mean of the squares of all its floating-point tensors."""
    import torch

    tensors = [leaf for leaf in tree_leaves(_plain(result)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not tensors:
        raise TargetError("--train needs a result that requires a gradient")
    if len(tensors) == 1 and tensors[0].numel() == 1:
        return tensors[0].sum()
    return sum(tensor.float().square().mean() for tensor in tensors)


def _plain(result: Any) -> Any:
    """Return an output of a library, which may be a mapping of its own type, as a dict."""
    return dict(result.items()) if hasattr(result, "items") else result


def _state(optimizer: Any, module: Any) -> dict[str, Any]:
    """Return the tensors that the optimizer keeps, by parameter and name."""
    import torch

    names = {id(parameter): name for name, parameter in module.named_parameters()}
    return {
        f"{key} of {names[id(parameter)]}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def _digests(prefix: str, tensors: dict[str, Any]) -> Iterator[tuple[str, tuple[str, tuple[float, ...]]]]:
    for name, tensor in tensors.items():
        if tensor is None:
            yield f"{prefix}{name}", ("none", ())
            continue
        data = tensor.detach().cpu()
        bits = hashlib.blake2b(f"{data.dtype}{tuple(data.shape)}".encode(), digest_size=8)
        with contextlib.suppress(RuntimeError, NotImplementedError):
            hash_bytes(bits, data)
        yield f"{prefix}{name}", (bits.hexdigest(), numbers_of([data]))
