"""Training on one side, step by step: digests of the loss, gradients, parameters, buffers and optimizer state.

Both sides begin with the same weights and see the same inputs. The new side trains again with noise of rounding size in
each operator: what differs by no more than that, rounding explains.
"""

from __future__ import annotations

import contextlib
import hashlib
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.cases.compilers import EAGER, builtin_compilers
from recapture.cases.own_code import TargetError, find, in_folder
from recapture.judge.digest import hash_bytes, numbers_of
from recapture.judge.perturbation import perturbed
from recapture.tools.drift.facts import Operator, Step, Task, Training
from recapture.tools.drift.ranks import full, mean_of_ranks, shared_among_ranks
from recapture.tools.drift.recording import Watch
from recapture.tools.drift.training_steps import distance
from recapture.torch_api.compat import seed_everything, tree_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from recapture.tools.drift.side import Side

NOISY_RUNS = 3
"""Runs with noise, from which the spread of each tensor comes."""

MOMENTUM = 0.9


class Trained(msgspec.Struct, frozen=True, kw_only=True):
    """What a training gave: its steps, the exception that ended it, and the operators of the step that was watched."""

    steps: tuple[Step, ...]
    error: BaseException | None = None
    operators: list[Operator] = []


def train(task: Task, training: Training, side: Side, rank: int = 0) -> Trained:
    """Train for the task's steps, in every one of its processes alike; `rank` is the number of this one.

    Raises TargetError for a target that cannot be trained.
    """
    if not side.is_module:
        raise TargetError("--train needs a torch.nn.Module")
    if task.other is None and rank == 0:
        side.keep_given()
    trained = _run(task, training, side, rank, watched=training.watched)
    if task.other is None or trained.error is not None or training.watched:
        return trained
    spreads: list[dict[str, float]] = [{} for _ in trained.steps]
    for seed in range(1, NOISY_RUNS + 1):
        with perturbed(seed):
            noisy = _run(task, training, side, rank)
        for number, (step, noisy_step) in enumerate(zip(trained.steps, noisy.steps, strict=False)):
            for name, (_, numbers) in step.tensors.items():
                apart = distance(numbers, noisy_step.tensors.get(name, ("", ()))[1])
                spreads[number][name] = max(spreads[number].get(name, 0.0), apart)
    steps = (msgspec.structs.replace(step, spread=spread) for step, spread in zip(trained.steps, spreads, strict=True))
    return msgspec.structs.replace(trained, steps=tuple(steps))


def _run(task: Task, training: Training, side: Side, rank: int, *, watched: int = 0) -> Trained:
    """Train once. The operators of step `watched`, counted from 1, are recorded."""
    seed_everything()
    module = side.module().to(task.device)
    module.train()
    called = _captured(task, shared_among_ranks(task, module), side)
    optimizer, scheduler = optimizer_of(task, training, module)
    watch = Watch()
    watch.name_modules(module)
    steps: list[Step] = []
    for number in range(1, training.steps + 1):
        try:
            with watch.watching() if number == watched else contextlib.nullcontext():
                loss, gradients, norm = _step(task, training, side, module, called, optimizer, rank, number)
                optimizer.step()
                if scheduler is not None:
                    scheduler.step()
        except Exception as error:
            return Trained(steps=tuple(steps), error=error, operators=watch.operators)
        tensors = dict(_digests("buffer ", dict(module.named_buffers())))
        tensors |= dict(_digests("loss", {"": loss}))
        tensors |= dict(_digests("gradient of ", gradients))
        tensors |= dict(_digests("norm of all gradients", {} if norm is None else {"": norm}))
        tensors |= dict(_digests("optimizer state ", _state(optimizer, module)))
        tensors |= dict(_digests("parameter ", dict(module.named_parameters())))
        steps.append(Step(loss=f"{float(loss):.9g}", tensors=tensors))
    return Trained(steps=tuple(steps), operators=watch.operators)


def _step(
    task: Task,
    training: Training,
    side: Side,
    module: Any,
    called: Any,
    optimizer: Any,
    rank: int,
    number: int,
) -> tuple[Any, dict[str, Any], Any]:
    """Compute the gradients of one step; return the loss, copies of the gradients, and their norm if it is clipped."""
    import torch

    optimizer.zero_grad()
    total = None
    for turn in range(training.accumulate):
        seed_everything()  # the same inputs on both sides, and in each step
        args = _share(side.arguments(), turn, training.accumulate)
        args = _share(args, rank, task.ranks)
        seed_everything(number)
        autocast: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        if training.autocast:
            autocast = torch.autocast(task.device, dtype=getattr(torch, training.autocast))
        with autocast:
            loss = _loss(task, training, called(*args), args) / training.accumulate
        loss.backward()
        total = loss.detach() if total is None else total + loss.detach()
    # From the last layer to the first: a fault in a backward shows in the layers before it too.
    parameters = [*module.named_parameters()][::-1]
    gradients = {name: None if value.grad is None else full(value.grad).clone() for name, value in parameters}
    norm = None
    if training.clip is not None:
        norm = torch.nn.utils.clip_grad_norm_([value for _, value in parameters], training.clip)
    return mean_of_ranks(task, total), gradients, norm


def _captured(task: Task, module: Any, side: Side) -> Any:
    """Return the module as the task's compiler captures it."""
    if task.compiler == EAGER:
        return module
    compiler = builtin_compilers()[task.compiler]
    if compiler.inference_only or not compiler.shares_state:
        raise TargetError(f"--train with {task.compiler}: it does not train the module itself")
    return compiler.function(module, side.arguments())


def optimizer_of(task: Task, training: Training, module: Any) -> tuple[Any, Any]:
    """Return the optimizer of a module and the scheduler of its rate, or None without one.

    Raises TargetError if the module has no parameters, or if the user's function returns no optimizer.
    """
    import torch

    parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
    if not parameters:
        raise TargetError("--train needs a module with parameters")
    if training.optimizer == "sgd":
        return torch.optim.SGD(parameters, lr=training.rate, momentum=MOMENTUM), None
    if training.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=training.rate), None
    built = _own(task, training.optimizer)(module)
    optimizer, scheduler = built if isinstance(built, tuple) and len(built) == 2 else (built, None)
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise TargetError(f"{training.optimizer[1]} returns no optimizer, but {type(optimizer).__name__}")
    return optimizer, scheduler


def _own(task: Task, function: tuple[str, str] | str) -> Any:
    """Return a function of the user."""
    folder = task.own_code["folder"]
    with in_folder(folder):
        return find(*function)


def _share(args: tuple[Any, ...], number: int, of: int) -> tuple[Any, ...]:
    """Return one of several equal shares of a batch; what is no tensor is the same in each."""
    import torch

    def share(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        if value.shape[0] % of:
            raise TargetError(f"a batch of {value.shape[0]} cannot be divided by {of}")
        return value.chunk(of)[number].detach().clone().requires_grad_(value.requires_grad)

    return args if of == 1 else tuple(map(share, args))


def _loss(task: Task, training: Training, result: Any, args: tuple[Any, ...]) -> Any:
    """Return the user's loss, or the result if it is a number, or the mean of the squares of its floating tensors."""
    import torch

    if training.loss is not None:
        return _own(task, training.loss)(result, *args)
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
        f"{key} of {names.get(id(parameter), 'another parameter')}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, torch.Tensor)
    }


def _digests(prefix: str, tensors: dict[str, Any]) -> Iterator[tuple[str, tuple[str, tuple[float, ...]]]]:
    for name, tensor in tensors.items():
        if tensor is None:
            yield f"{prefix}{name}", ("none", ())
            continue
        data = full(tensor.detach()).cpu()
        bits = hashlib.blake2b(f"{data.dtype}{tuple(data.shape)}".encode(), digest_size=8)
        with contextlib.suppress(RuntimeError, NotImplementedError):
            hash_bytes(bits, data)
        yield f"{prefix}{name}", (bits.hexdigest(), numbers_of([data]))
