"""Counts how often rounding is taken for an error: ordinary computations against equally good ones, by `rounding`.

Every computation runs in eager, compiled by Inductor, in float64 rounded at the end, and, where it sums, in other
orders of summation: pairwise, reversed, and one after the other in 8 or 16 lanes. Nothing here is wrong, so every
blamed comparison is a mistake of the rule.

    python -m benchmarks.rounding                      # all of it; about 20 minutes on one core, most of it compiling
    python -m benchmarks.rounding --only sum --seeds 20 --no-compile
    python -m benchmarks.rounding --device cuda --json rounding.json
    python -m benchmarks.rounding --first-seed 1000 --jobs 2    # other random inputs, two processes

It prints, for each computation, how many comparisons had other bits, how many were blamed, the largest ratio of a
deviation to what the rule allows (1 would be blamed), the perturbed runs that a comparison took, and their cost.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.computations import HALF, Computation, all_computations
from recapture.base.escape import indented_json
from recapture.judge.perturbation import perturbed
from recapture.judge.rounding import explained, largest_ratio, same_bits
from recapture.judge.snapshot import Snapshot, snapshot_of
from recapture.torch_api.compat import reset_dynamo


@dataclass
class Tally:
    """What was found for one computation in one dtype against one other way to compute it."""

    computation: str
    dtype: str
    other: str
    comparisons: int = 0
    different: int = 0
    blamed: int = 0
    worst: float = 0.0
    runs: int = 0
    milliseconds: float = 0.0


def in_float64(computation: Computation, args: tuple[torch.Tensor, ...], dtype: torch.dtype) -> Any:
    """Compute in float64 (in float32 for half types, as compiled code does) and round the results."""
    result = computation.run(
        computation.function, tuple(arg.to(torch.float64 if dtype == torch.float32 else torch.float32) for arg in args)
    )
    return rounded(result, dtype)


def rounded(result: Any, dtype: torch.dtype) -> Any:
    """Convert every tensor in a result."""
    return (
        result.to(dtype) if isinstance(result, torch.Tensor) else type(result)(rounded(part, dtype) for part in result)
    )


def leaves(snapshot: Snapshot) -> list[Snapshot]:
    """Return the tensors in a described value."""
    return (
        [snapshot]
        if snapshot.tensor is not None
        else [leaf for _, part in snapshot.children or () for leaf in leaves(part)]
    )


def compare(
    computation: Computation,
    args: tuple[torch.Tensor, ...],
    eager: Any,
    other: Any,
    tally: Tally,
    cache: dict[int, list[Snapshot]],
) -> None:
    """Compare one result with eager's and count."""
    start = time.perf_counter()

    def run(number: int) -> list[Snapshot]:
        if number not in cache:
            with perturbed(number):
                cache[number] = leaves(snapshot_of(computation.run(computation.function, args)))
        return cache[number]

    tally.comparisons += 1
    before, different, blamed = len(cache), False, False
    runs = 0
    for index, (own, changed) in enumerate(zip(leaves(snapshot_of(eager)), leaves(snapshot_of(other)), strict=True)):
        if same_bits(own, changed):
            continue
        numbers: list[int] = []

        def sample(number: int, index: int = index, numbers: list[int] = numbers) -> Snapshot:
            numbers.append(number)
            return run(number)[index]

        different = True
        if not explained(own, changed, sample):
            blamed = True
            print("BLAMED", tally, f"output {index}", file=sys.stderr)
        runs = max(runs, len(numbers))
        tally.worst = max(tally.worst, largest_ratio(own, changed, [run(number)[index] for number in numbers]))
    tally.different += different
    tally.blamed += blamed
    tally.runs += runs
    if len(cache) > before:
        tally.milliseconds += (time.perf_counter() - start) * 1e3


def other_ways(
    computation: Computation, args: tuple[torch.Tensor, ...], compiled: Callable[..., Any] | None, *, lanes: bool
) -> dict[str, Any]:
    """Return what every other way to compute the same gives, by name; sums in lanes, which are slow, only if wanted."""
    dtype = args[0].dtype
    results = {} if compiled is None else {"compile": computation.run(compiled, args)}
    if dtype != torch.float64:
        results["wider dtype"] = in_float64(computation, args, dtype)
    # No compiler rounds to a half type inside an operator.
    widened = tuple(arg.float() if dtype in HALF else arg for arg in args)
    for label, way in computation.others.items():
        if lanes or "lanes" not in label:
            results[label] = rounded(computation.run(way, widened), dtype)
    return results


def measure(computation: Computation, dtype: torch.dtype, options: argparse.Namespace) -> list[Tally]:
    """Compare one computation in one dtype with every other way to compute it, on every seed."""
    tallies: dict[str, Tally] = {}
    reset_dynamo()
    compiled = torch.compile(computation.function, dynamic=False) if options.compile else None
    few = max(options.seeds // 5, 1)
    for seed in range(few if computation.is_large else options.seeds):
        torch.manual_seed(options.first_seed + seed)
        args = tuple(arg.to(options.device, dtype) for arg in computation.make())
        eager = computation.run(computation.function, args)
        cache: dict[int, list[Snapshot]] = {}
        for label, other in other_ways(computation, args, compiled, lanes=seed < few).items():
            tally = tallies.setdefault(label, Tally(computation.name, str(dtype).rpartition(".")[2], label))
            compare(computation, args, eager, other, tally, cache)
    return list(tallies.values())


def measure_task(task: tuple[int, torch.dtype, argparse.Namespace]) -> list[Tally]:
    """Measure a computation, given by its number among all because it holds functions that cannot be pickled."""
    torch.set_num_threads(1)
    index, dtype, options = task
    return measure(all_computations()[index], dtype, options)


HEADER = ("computation", "dtype", "other", "pairs", "differ", "blamed", "worst", "runs", "ms")
ROW = "{:26} {:9} {:12} {:>6} {:>6} {:>6} {:>6} {:>5} {:>8}"


def row(tally: Tally) -> str:
    """Return a line of the table; runs and milliseconds are for each comparison with other bits."""
    many = max(tally.different, 1)
    figures = (f"{tally.worst:.3g}", f"{tally.runs / many:.1f}", f"{tally.milliseconds / many:.2f}")
    return ROW.format(
        tally.computation, tally.dtype, tally.other, tally.comparisons, tally.different, tally.blamed, *figures
    )


def main() -> int:
    """Run the benchmark; the exit status is 1 if anything was blamed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument(
        "--seeds", type=int, default=100, help="number of random inputs; a fifth of it for large inputs and for lanes"
    )
    parser.add_argument("--first-seed", type=int, default=0, help="the seeds are consecutive numbers from here")
    parser.add_argument("--jobs", type=int, default=1, help="processes; the times hold only for one")
    parser.add_argument("--only", default="", metavar="REGEX", help="computations whose name matches")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="leave out Inductor")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    options = parser.parse_args()
    all_tallies: list[Tally] = []
    print(ROW.format(*HEADER))
    tasks = [
        (index, dtype, options)
        for index, computation in enumerate(all_computations())
        for dtype in computation.dtypes
        if re.search(options.only, computation.name)
    ]
    with ProcessPoolExecutor(options.jobs, multiprocessing.get_context("spawn")) as pool:
        for tallies in map(measure_task, tasks) if options.jobs == 1 else pool.map(measure_task, tasks):
            all_tallies += tallies
            print("\n".join(map(row, tallies)), flush=True)
    total = {
        name: sum(getattr(tally, name) for tally in all_tallies)
        for name in ("comparisons", "different", "blamed", "runs")
    }
    print(
        f"{total['comparisons']} comparisons, {total['different']} with other bits, {total['blamed']} blamed; "
        f"{total['runs'] / max(total['different'], 1):.2f} perturbed runs for each that differs"
    )
    if options.json:
        facts = {
            **total,
            "device": options.device,
            "torch": str(torch.__version__),
            "rows": [asdict(tally) for tally in all_tallies],
        }
        options.json.write_bytes(indented_json(facts).encode())  # an infinite ratio is null
    return 1 if total["blamed"] else 0


if __name__ == "__main__":
    sys.exit(main())
