"""A workload in this process: its model under a configuration, its inputs, and its iterations."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from recapture.cases.workload import Workload
from recapture.judge.placement import map_tensors
from recapture.tools.speed.speedups import Configuration
from recapture.torch_api.compat import float32_flags, seed_everything, set_float32_flags

INPUT_SETS = 4
"""Number of sets of inputs used in rotation, so that inputs are not in a cache from the previous iteration."""

FLOAT64 = "float64"
"""Name of the reference's arithmetic, which is not an option of the command line."""


class Subject:
    """One variant of a workload: built under the seed, on its device, and ready to iterate.

    Every variant has its own model and optimizer with the same parameters, and gets the same inputs in the same order.
    With `exact` it is the float64 reference.
    """

    def __init__(self, workload: Workload, configuration: Configuration, device: str, *, exact: bool = False) -> None:
        import torch

        self.workload = workload
        self.device = device
        self.dtype = FLOAT64 if exact else configuration.dtype
        self.channels_last = configuration.layout == "channels-last"
        seed_everything()
        model = workload.build()
        if not isinstance(model, torch.nn.Module):
            raise TypeError(f"workload {workload.name!r} builds a {type(model).__name__}, not an nn.Module")
        model = model.train(workload.trains).to(device)
        if self.dtype in ("bf16", FLOAT64):
            model = model.to(torch.bfloat16 if self.dtype == "bf16" else torch.float64)
        if self.channels_last:
            model = model.to(memory_format=torch.channels_last)
        self.model = model
        self.batches = [self._batch(number) for number in range(INPUT_SETS)]
        self.optimizer: Any = None
        if workload.optimizer is not None:
            self.optimizer = workload.optimizer(model.parameters())
        self._call: Callable[..., Any] = model
        self._step: Callable[..., Any] | None = None
        self.result: Any = None
        """Result of the last iteration, kept until the next one, like the variable of a user's loop."""

    def _batch(self, number: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        seed_everything(1000 + number)
        inputs = tuple(map_tensors(self.workload.inputs(), self._place))
        targets = () if self.workload.targets is None else tuple(map_tensors(self.workload.targets(), self._place))
        return inputs, targets

    def _place(self, tensor: Any) -> Any:
        import torch

        placed = tensor.to(self.device)
        # Indices and masks stay as they are.
        if placed.is_floating_point() and self.dtype in ("bf16", FLOAT64):
            placed = placed.to(torch.bfloat16 if self.dtype == "bf16" else torch.float64)
        if self.channels_last and placed.dim() == 4:
            placed = placed.to(memory_format=torch.channels_last)
        return placed

    @contextlib.contextmanager
    def context(self) -> Iterator[None]:
        """Set the state around iterations that is not part of them: flags, and the grad mode of inference."""
        import torch

        before = float32_flags()
        set_float32_flags(self.dtype)
        quiet = torch.no_grad() if self.workload.no_grad and not self.workload.trains else contextlib.nullcontext()
        # Autocast applies here to inference; a training step enters it itself, because backward must be outside.
        amp = self._autocast() if not self.workload.trains else contextlib.nullcontext()
        try:
            with quiet, amp:
                yield
        finally:
            set_float32_flags(before)

    def _autocast(self) -> Any:
        import torch

        if self.dtype != "amp":
            return contextlib.nullcontext()
        return torch.autocast(self.device, dtype=torch.bfloat16)

    def capture(self, capture: Callable[..., Any], *, whole_step: bool) -> float:
        """Pass the model, or the whole training step, to a compiler; return the seconds it took."""
        import torch

        state = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        begin = time.perf_counter()
        with self.context():
            if whole_step:
                self._step = capture(self._training_step, self.batches[0])
            else:
                with self._autocast() if self.workload.trains else contextlib.nullcontext():
                    self._call = capture(self.model, self.batches[0][0])
        synchronize(self.device)
        seconds = time.perf_counter() - begin
        # A tracer runs the model, which updates the statistics of norm layers once more than in eager.
        with torch.no_grad():
            for name, value in self.model.state_dict().items():
                value.copy_(state[name])
        return seconds

    def iterate(self, number: int) -> None:
        """Run one iteration, on the next set of inputs; call it inside `context`."""
        inputs, targets = self.batches[number % INPUT_SETS]
        if self.workload.trains:
            self.result = (self._step or self._training_step)(inputs, targets)
        else:
            self.result = self._call(*inputs)

    def _training_step(self, inputs: Any, targets: Any) -> Any:
        self.optimizer.zero_grad(set_to_none=True)
        with self._autocast():
            output = self._call(*inputs)
            loss = self.workload.loss(output, *targets)  # type: ignore[misc]
        loss.backward()
        self.optimizer.step()
        return loss

    def timed_calls(self, count: int, after: dict[int, Callable[[], None]] | None = None) -> list[float]:
        """Return the seconds of each of the first iterations; `after` has functions to call, untimed, after some.

        The last result is dropped at the end, as when a user's function with such a loop returns: CUDA graphs that
        were warming up can then be recorded.
        """
        seconds = []
        with self.context():
            for number in range(count):
                synchronize(self.device)
                begin = time.perf_counter()
                self.iterate(number)
                synchronize(self.device)
                # Only now have the kernels ended that the call launched.
                seconds.append(time.perf_counter() - begin)
                if after and number in after:
                    after[number]()
        self.result = None
        return seconds


def synchronize(device: str) -> None:
    """Wait for the GPU, if there is one."""
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
