"""One side, in a process of its own: ``python bootstrap.py recapture.tools.drift.side [FOLDER/request.json [RANK]]``.

Without a file, the names of such files are read from standard input, and each task is carried out by a fork.

The Python may be one of another release. Weights and inputs of the first side are taken over as bytes, so that what
differs afterwards is what the side computes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import platform
import sys
import traceback
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec

from recapture.base.exceptions import qualified, safe_text
from recapture.base.files import write_atomically
from recapture.base.scrub import encodable, scrub
from recapture.base.text import one_line, shorten
from recapture.cases.compilers import EAGER, builtin_compilers
from recapture.cases.own_code import OwnCode, TargetError, order_of_names
from recapture.judge.compare import Rules, compare
from recapture.judge.digest import digest_of, hash_bytes
from recapture.judge.fresh_case import FreshCase
from recapture.judge.observe import Observation
from recapture.judge.reference import Eager
from recapture.judge.rounding import same_bits
from recapture.machine.describe import installed_packages
from recapture.tools.drift import stored
from recapture.tools.drift.facts import (
    ERRORS,
    GIVEN,
    KEPT,
    OBSERVED,
    OPERATORS,
    REPORT,
    WITHOUT_NUMBERS,
    Operator,
    Part,
    Raised,
    SideReport,
    Task,
    Training,
    Verdict,
)
from recapture.tools.drift.ranks import other_ranks
from recapture.tools.drift.recording import Watch, compare_operators, digits_between
from recapture.tools.drift.training import train
from recapture.torch_api.compat import device_works, installed_torch, seed_everything
from recapture.torch_api.kept_builds import keep_builds, take_folder

MESSAGE = 300
"""Characters of an exception's message."""

REFERENCE_RUN = 1_000
"""Number of the run with noise that others are compared with."""

CAPTURE_SEED = 1
"""Seed of a capture, other than that of the call."""


class Side:
    """The target of a task, its inputs, and what this process observes of them."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.folder = Path(task.folder)
        self.source: dict[str, Any] = {} if task.other is None else stored.read(Path(task.other) / GIVEN)
        self.initial: dict[str, str] = {}
        self.gradients: bool = self.source.get("gradients", True)
        self.own = OwnCode(**task.own_code, gradients=self.gradients)
        self.title = f"{Path(self.own.place).name}:{self.own.name}"
        if self.source.get("target", self.title) != self.title:
            raise TargetError(f"{task.other} is a side of {self.source['target']}, not of {self.title}")
        built = self.own.load()
        self.calling: dict[str, Any] = {}
        inputs = self.own.given()
        if isinstance(inputs, dict):
            names, by_name = order_of_names(built, inputs)
            self.calling = {"names": names, "by_name": by_name}
            self.own = OwnCode(**task.own_code, gradients=self.gradients, **self.calling)
        import torch

        self.is_module = isinstance(built, torch.nn.Module)

    def module(self) -> Any:
        """Make the target; its weights are those of the other side, if there is one."""
        target = self.own.load()
        tensors = stored.tensors_of_module(target)
        if not self.initial:  # later ones are not made under the seed
            self.initial = {name: _hash(tensor) for name, tensor in tensors.items()}
        if self.source:
            stored.take_over(tensors, self.source["weights"], "weights")
        return target

    def arguments(self) -> tuple[Any, ...]:
        """Make the arguments; their elements are those of the other side, if there is one."""
        args = self.own.example()
        if self.source:
            stored.take_over(stored.arrays_of(args), self.source["inputs"], "inputs")
        return args

    def case(self) -> Any:
        """Return what the judge calls: a case with one input."""
        return SimpleNamespace(
            target=self.module if self.is_module else self.own.load(),
            is_module=self.is_module,
            inputs=lambda: [("example", self.arguments)],
            watch=None,
            reset=None,
            backward=None,
            train_step=None,
            strict=(),
            rewrite_of=None,
        )

    def without_gradients_of_inputs(self) -> None:
        """Call the target with inputs that require no gradient: one that writes into its inputs cannot have them."""
        self.gradients = False
        self.own = OwnCode(**self.task.own_code, gradients=False, **self.calling)

    def keep_given(self) -> None:
        """Write the weights and inputs for the other side."""
        seed_everything()
        weights = stored.tensors_of_module(self.module()) if self.is_module else {}
        seed_everything()
        inputs = stored.arrays_of(self.own.example())
        stored.write(
            self.folder / GIVEN,
            {
                "weights": stored.copies(weights),
                "inputs": stored.copies(inputs),
                "gradients": self.gradients,
                "target": self.title,
            },
        )


def examine(task: Task, rank: int = 0) -> SideReport:
    """Carry out a task; return what the side says, or a report with a problem for what the user can mend.

    `rank` is the number of this process among those of a training.
    """
    import torch

    if not device_works(task.device):
        return SideReport(problem=f"the device {task.device} does not work here")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", torch.get_num_threads())))
    streams = random_streams(task.device)
    side = Side(task)
    if task.training is not None:
        with switched_off(task.without):
            return _trained(task, task.training, side, streams, rank)
    with switched_off(task.without):
        first, again, eager = _observed(side)
        if first.raised is not None and side.gradients and task.other is None:
            side.without_gradients_of_inputs()
            first, again, eager = _observed(side)
        if task.keep is not None:
            return _kept(task, side, first)
        if task.other is None:
            side.keep_given()
        stored.write(side.folder / OBSERVED, stored.plain_observation(first))
        if task.record and task.compiler == EAGER:
            operators = _operators(side)
            write_atomically(side.folder / OPERATORS, msgspec.json.encode(operators))
        stable = _agree(first, again, eager)  # before runs with noise are made, which may have to allow for other bits
        parts: tuple[Part, ...] = ()
        spread = None
        if task.other is not None:
            other = stored.observation_from(stored.read(Path(task.other) / OBSERVED))
            parts = parts_of(other, stored.as_stored(first), eager)
            if any(part.verdict not in WITHOUT_NUMBERS for part in parts):
                spread = _spread(stored.comparable(first), eager)
    raised = first.raised or first.backward
    digests = _digests(first)
    return SideReport(
        **_about(task.device),
        raised=None if raised is None else Raised(raised.type, _line(raised.message)),
        gradients=side.gradients,
        stable=stable,
        repeats=digests == _digests(again),
        initial=side.initial,
        streams=streams,
        digests=digests,
        parts=parts,
        spread=spread,
    )


def switched_off(names: tuple[str, ...]) -> contextlib.ExitStack:
    """Return a context in which libraries of torch's are not used; their names are those of `SWITCHES`."""
    with contextlib.ExitStack() as stack:
        for name in names:
            SWITCHES[name](stack)
        return stack.pop_all()


def _without_onednn(stack: contextlib.ExitStack) -> None:
    import torch

    # Not flags(): it also sets what an Intel GPU would need, and warns that there is none.
    before = torch.backends.mkldnn.set_flags(False)
    stack.callback(torch.backends.mkldnn.set_flags, before[0])


def _without_cudnn(stack: contextlib.ExitStack) -> None:
    import torch

    _set(stack, torch.backends.cudnn, "enabled", value=False)


def _without_reduced_sums(stack: contextlib.ExitStack) -> None:
    import torch

    for dtype in ("bf16", "fp16"):
        _set(stack, torch.backends.cuda.matmul, f"allow_{dtype}_reduced_precision_reduction", value=False)


def _set(stack: contextlib.ExitStack, settings: Any, name: str, *, value: bool) -> None:
    stack.callback(setattr, settings, name, getattr(settings, name))
    setattr(settings, name, value)


SWITCHES: dict[str, Callable[[contextlib.ExitStack], None]] = {
    "oneDNN": _without_onednn,
    "cuDNN": _without_cudnn,
    "reduced sums": _without_reduced_sums,
}
"""What can be switched off, by name; each function does so until the stack closes."""


def _about(device: str) -> dict[str, Any]:
    import torch

    return {
        "torch": installed_torch(),
        "packages": {name: version for name, version in installed_packages().items() if _imported(name)},
        "settings": {
            "device": torch.cuda.get_device_name() if device == "cuda" else device,
            "python": platform.python_version(),
            "threads": str(torch.get_num_threads()),
            "cpu_capability": str(torch.backends.cpu.get_cpu_capability()),
        },
    }


def _imported(name: str) -> bool:
    """Whether a package was imported here, so that it can matter."""
    return name.replace("-", "_").lower() in {module.lower() for module in sys.modules}


def random_streams(device: str) -> dict[str, str]:
    """Return hashes of random numbers under a fixed seed: both these and initialisations change between releases."""
    import torch

    makers: dict[str, Callable[[], Any]] = {
        "rand": lambda: torch.rand(1000, device=device),
        "randn": lambda: torch.randn(1000, device=device),
        "randint": lambda: torch.randint(0, 1 << 20, (1000,), device=device),
        "randperm": lambda: torch.randperm(1000, device=device),
        "bernoulli": lambda: torch.full((1000,), 0.3, device=device).bernoulli_(),
        "multinomial": lambda: torch.multinomial(torch.ones(100, device=device), 50),
        "exponential": lambda: torch.empty(1000, device=device).exponential_(),
        "dropout": lambda: torch.nn.functional.dropout(torch.ones(1000, device=device), 0.5),
        "trunc_normal": lambda: torch.nn.init.trunc_normal_(torch.empty(1000, device=device)),
        "kaiming_uniform": lambda: torch.nn.init.kaiming_uniform_(torch.empty(40, 25, device=device)),
        "orthogonal": lambda: torch.nn.init.orthogonal_(torch.empty(20, 20, device=device)),
    }
    hashes = {}
    for name, make in makers.items():
        seed_everything()
        with contextlib.suppress(Exception):  # a device that lacks it
            hashes[name] = _hash(make())
    return hashes


def _observed(side: Side) -> tuple[Observation, Observation, Eager]:
    """Observe the call twice; the second shows whether this side agrees with itself."""
    eager = Eager(side.case, side.task.device)
    if side.task.compiler == EAGER:
        first = eager.observe()[0]
        return first, eager.observe()[0], eager
    eager.observe()
    compiler = builtin_compilers()[side.task.compiler]
    subject = FreshCase(side.case(), side.task.device)
    seed_everything()
    arguments = subject.arguments(side.arguments)()
    seed_everything(CAPTURE_SEED)
    captured = compiler.function(subject.target, arguments)
    observations = []
    for _ in range(2):
        subject.start_again()
        backward = not compiler.inference_only
        observations.append(subject.call(captured, "example", side.arguments, backward=backward))
    subject.leave()
    return observations[0], observations[1], eager


def _operators(side: Side) -> list[Operator]:
    watch = _watched(side, {})[0]
    return watch.operators


def _watched(side: Side, how: dict[str, Any]) -> tuple[Watch, Observation]:
    """Observe the call once more with every operator watched."""
    watch = Watch(**how)
    subject = FreshCase(side.case(), side.task.device, watching=watch.watching)
    watch.name_modules(subject.target)
    observation = subject.call(subject.target, "example", side.arguments)
    subject.leave()
    return watch, observation


def _kept(task: Task, side: Side, first: Observation) -> SideReport:
    """Keep the tensors of one operator; compare them with those of the other side, and go on with those, if asked."""
    other_place = None if task.other is None else Path(task.other) / KEPT
    other = stored.read(other_place) if other_place is not None and other_place.exists() else None
    replace = other["outputs"] if other is not None and task.substitute else None
    watch, observation = _watched(side, {"keep": task.keep, "replace": replace})
    if watch.kept is None:
        return SideReport(problem=f"operator {task.keep} was not called again")
    stored.write(side.folder / KEPT, watch.kept)
    difference = None if other is None else compare_operators(other, watch.kept)
    parts: tuple[Part, ...] = ()
    if watch.replaced and task.other is not None:
        eager = Eager(side.case, task.device)
        eager.observe()
        before = stored.observation_from(stored.read(Path(task.other) / OBSERVED))
        parts = parts_of(before, stored.as_stored(observation), eager)
    return SideReport(**_about(task.device), operator=difference, parts=parts, stable=first.raised is None)


def parts_of(old: Observation, new: Observation, eager: Eager) -> tuple[Part, ...]:
    """Compare what two sides gave, part by part; `eager` makes runs with noise, to judge what rounding explains."""
    if (old.raised or old.backward) or (new.raised or new.backward):
        texts = [
            "" if error is None else error.type for error in (old.raised or old.backward, new.raised or new.backward)
        ]
        same = texts[0] == texts[1]
        verdict: Verdict = "same bits" if same else "refuses"
        return (Part(name="the call", verdict=verdict, old=texts[0] or "returns", new=texts[1] or "returns"),)
    # The runs with noise are of this side, so that it is the one that the other is compared with. Each run serves all
    # parts: it has as many numbers as the whole model.
    comparison = compare(new, old, sample=cache(partial(_sample, new, eager)), rules=Rules())
    by_place = {difference.where: difference for difference in [*comparison.notes, *comparison.differences]}
    before, after = stored.leaves_of(old), stored.leaves_of(new)
    parts = []
    for name in dict.fromkeys([*before, *after, *by_place]):
        left, right = before.get(name), after.get(name)
        difference = by_place.get(name)
        digits, elements = None, None
        if left is not None and right is not None and left.tensor is not None and right.tensor is not None:
            first, second = left.tensor.data, right.tensor.data
            if first is not None and second is not None and first.shape == second.shape:
                digits = digits_between(first, second)
                elements = (int((first != second).sum()), first.numel())
        if difference is not None and difference.kind != "gradient" and difference.unlike != "value":
            verdict = "form"
        elif difference is not None and difference.unlike == "value" and difference in comparison.differences:
            verdict = "changed"
        elif difference is not None and difference.unlike != "value":
            verdict = "form"
        elif left is not None and right is not None and left.tensor is not None:
            verdict = "same bits" if same_bits(left, right) else "rounding"
        else:
            verdict = "same bits" if left == right else "rounding"
        old_text = new_text = ""
        if difference is not None and verdict in ("form", "changed"):
            old_text, new_text = difference.other or "", difference.eager or ""
        parts.append(Part(name=name, verdict=verdict, digits=digits, elements=elements, old=old_text, new=new_text))
    return tuple(parts)


def _sample(own: Observation, eager: Eager, run: int) -> Observation | None:
    """Return what this side gives in a run with noise of rounding size in each operator; None if there is none."""
    noisy, reference = eager.sample("example", run), eager.sample("example", REFERENCE_RUN)
    return None if noisy is None or reference is None else stored.moved_by_noise(own, noisy, reference)


def _spread(first: Observation, eager: Eager) -> float | None:
    """Return the fewest digits to which results and runs with noise of rounding size in each operator agree."""
    digits = []
    for run in range(3):
        noisy = _sample(first, eager, run)
        if noisy is None:
            return None
        leaves = stored.leaves_of(noisy)
        for name, leaf in stored.leaves_of(first).items():
            other = leaves.get(name)
            if name.startswith("result") and leaf.tensor is not None and other is not None and other.tensor is not None:
                between = digits_between(leaf.tensor.data, other.tensor.data)
                digits += [] if between is None else [between]
    return min(digits, default=None)


def _digests(observation: Observation) -> dict[str, str]:
    return {name: digest_of(leaf).bits for name, leaf in stored.leaves_of(stored.as_stored(observation)).items()}


def _agree(first: Observation, again: Observation, eager: Eager) -> bool:
    """Whether two calls of this side give the same, but for rounding."""
    plain = [stored.as_stored(observation) for observation in (first, again)]
    rules = Rules(show_values=False)
    unequal: list[int] = []  # runs with noise are asked for where bits differ
    if not compare(*plain, sample=unequal.append, rules=rules).differences and not unequal:
        return True
    eager.find_rounding(eager.observe())
    return not compare(*plain, sample=cache(partial(_sample, plain[0], eager)), rules=rules).differences


def _trained(task: Task, training: Training, side: Side, streams: dict[str, str], rank: int) -> SideReport:
    trained = train(task, training, side, rank)
    raised = trained.error
    if isinstance(raised, TargetError):
        raise raised
    if training.watched and rank == 0:
        write_atomically(side.folder / OPERATORS, msgspec.json.encode(trained.operators))
    return SideReport(
        **_about(task.device),
        raised=None
        if raised is None
        else Raised(qualified(type(raised)), _line(safe_text(raised)), step=len(trained.steps) + 1),
        initial=side.initial,
        streams=streams,
        steps=trained.steps,
    )


def _hash(tensor: Any) -> str:
    bits = hashlib.blake2b(f"{tensor.dtype}{tuple(tensor.shape)}".encode(), digest_size=8)
    hash_bytes(bits, tensor.detach().cpu())
    return bits.hexdigest()


def _line(text: str) -> str:
    return encodable(shorten(scrub(one_line(text)), MESSAGE))


def main(path: Path, rank: int = 0) -> None:
    """Carry out the task in a file, and write the report beside it; only the first of several processes writes."""
    task = msgspec.json.decode(path.read_bytes(), type=Task)
    try:
        with other_ranks(task, path, rank):
            report = examine(task, rank)
    except TargetError as error:
        report = SideReport(problem=_line(str(error)))
    except Exception as error:
        report = SideReport(problem=_line(f"{qualified(type(error))}: {safe_text(error)}"))
        raise
    finally:
        if rank == 0:
            write_atomically(Path(task.folder) / REPORT, msgspec.json.encode(report))


@cache
def prepare_compiling() -> None:
    """Import what compilers need, and let this process and its forks use what earlier runs built."""
    for name in ("torch._dynamo", "torch._inductor.compile_fx"):
        with contextlib.suppress(Exception):  # an older release
            importlib.import_module(name)
    keep_builds()


def serve() -> None:
    """Carry out the tasks that standard input names, each in a fork; write a line when one is done.

    Torch, which takes longer to import than most tasks do, is imported once, and so is what compilers need. Nothing is
    computed before a fork.
    """
    take_folder()
    for line in sys.stdin:
        request = Path(line.rstrip("\n"))
        if msgspec.json.decode(request.read_bytes(), type=Task).compiler != EAGER:
            prepare_compiling()
        child = os.fork()
        if child == 0:
            sys.stdin.close()
            with request.with_name(ERRORS).open("wb") as errors, Path(os.devnull).open("wb") as nowhere:
                os.dup2(errors.fileno(), 2)
                os.dup2(nowhere.fileno(), 1)
            status = 1
            try:
                main(request)
                status = 0
            except Exception:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(status)  # the rest of this file belongs to the parent
        os.waitpid(child, 0)
        print("done", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
    else:
        serve()
