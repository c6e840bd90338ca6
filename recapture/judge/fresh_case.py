"""A newly executed case: what is called, on which device, and the state that its calls can change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from recapture.judge.earlier_calls import EarlierCalls
from recapture.judge.observe import Observation, Surroundings, call_with, observe_call
from recapture.judge.placement import arguments, map_tensors
from recapture.judge.reachable import Reachable
from recapture.torch_api.compat import seed_everything

if TYPE_CHECKING:
    from recapture.cases.case import Case
    from recapture.judge.float64 import Widening


class FreshCase:
    """A newly executed case: its function, or its module built under the seed, on the device, and what it can reach.

    With `roomy`, zeros are added behind every argument. With `watching`, a function that makes a context, calls are
    observed inside it, and for their values alone; without `settings`, these are not looked at. What is made before a
    call is not observed: both sides have the same inputs and parameters, so that no noise is due there. With
    `widening`, inputs and state are made as usual, and then their tensors are widened.
    """

    def __init__(
        self,
        case: Case,
        device: str,
        *,
        roomy: bool = False,
        watching: Callable[[], AbstractContextManager[None]] | None = None,
        settings: bool = True,
        widening: Widening | None = None,
    ) -> None:
        self.case = case
        self.widening = widening
        self.watching = watching
        self.settings = settings
        self.device = device
        self.roomy = roomy
        self.target: Any = case.target
        if case.is_module:
            seed_everything()
            self.target = case.target().to(device)
        self.reset()  # before the state is saved: what `reset` sets is where every sequence of calls begins
        self.reachable = Reachable(self.target)
        if widening is not None:
            for _, array in self.reachable.arrays():
                widening.widen(array)
        self.restore = self.reachable.save()
        self.earlier = EarlierCalls()

    def reset(self) -> None:
        """Call the case's own reset, if it has one."""
        if self.case.reset is not None:
            call_with(self.case.reset, self.target)

    def start_again(self) -> None:
        """Set the state back to what it was when the case was made, and forget earlier results."""
        self.restore()
        self.reset()
        self.earlier = EarlierCalls()

    def leave(self) -> None:
        """Set back what the next execution of the case's file shares with this one."""
        for restore in self.reachable.shared:
            restore()

    def arguments(self, make: Callable[[], tuple[Any, ...]]) -> Callable[[], tuple[Any, ...]]:
        """Wrap a factory: its tensors are placed on the device."""
        placed = partial(arguments, make, self.device, roomy=self.roomy)
        return placed if self.widening is None else partial(_widened, placed, self.widening)

    def call(
        self,
        function: Callable[..., Any],
        label: str,
        make: Callable[[], tuple[Any, ...]],
        *,
        module: Any = None,
        seed: str | None = None,
        backward: bool = True,
    ) -> Observation:
        """Observe one call of `function`, which is the target or a compiler's result.

        `module` is a compiler's result that has its own parameters and buffers.
        """
        around = Surroundings(
            reachable=self.reachable,
            module=module,
            watch=self.case.watch,
            target=self.target,
            backward=backward and self.case.backward is not False,
            train_step=self.case.train_step,
            all_output="output" in self.case.strict,
            values_only=self.watching is not None,
            settings=self.settings,
            watching=self.watching or nullcontext,
            device=self.device,
            earlier=self.earlier,
        )
        return observe_call(function, label, self.arguments(make), around, seed)


def _widened(make: Callable[[], tuple[Any, ...]], widening: Widening) -> tuple[Any, ...]:
    with widening.paused_for_inputs():
        args = make()
    mapped: tuple[Any, ...] = map_tensors(args, widening.widen)
    return mapped
