"""Measures what it costs `recapture drift` to record every operator: ``python -m benchmarks.drift_recording``.

Models of torchvision with random weights are called with a backward, in turns with and without the recording, in one
process for each model. The benchmark prints the medians, their ratio, and by how many MiB the peak of memory grows,
which another process measures. It needs torchvision.

This only measures: the exit status is 0 for any figures.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from recapture.report.document import Table
from recapture.report.markdown_writer import table_markdown
from recapture.tools.drift.recording import Watch

MODELS = {
    "resnet18": 8,
    "resnet50": 4,
    "densenet121": 4,
    "mobilenet_v3_large": 8,
    "efficientnet_b0": 4,
    "convnext_tiny": 4,
    "vit_b_16": 2,
    "swin_t": 2,
}
"""The models, each with the number of images of 224 by 224 pixels in a call."""


def step_of(name: str) -> tuple[Any, Callable[[], None]]:
    """Return a model in training mode, and a call of it with a backward."""
    import torch
    import torchvision

    torch.manual_seed(0)
    model = torchvision.models.get_model(name)
    images = torch.rand(MODELS[name], 3, 224, 224)

    def step() -> None:
        model.zero_grad()
        model(images).square().mean().backward()

    return model, step


def recorded(model: Any, step: Callable[[], None]) -> int:
    """Make a call while every operator is recorded; return how many there are."""
    watch = Watch()
    watch.name_modules(model)
    with watch.watching():
        step()
    return len(watch.operators)


def times(name: str, pairs: int) -> dict[str, Any]:
    """Return the seconds of the calls without and with the recording, in turns, and the number of operators."""
    model, step = step_of(name)
    step()
    operators = recorded(model, step)
    plain, watched = [], []
    for _ in range(pairs):
        begin = time.perf_counter()
        step()
        middle = time.perf_counter()
        recorded(model, step)
        plain.append(middle - begin)
        watched.append(time.perf_counter() - middle)
    return {"plain": plain, "watched": watched, "operators": operators}


def peak(name: str, *, watched: bool) -> dict[str, Any]:
    """Return the peak of this process's memory in MiB, after three calls."""
    model, step = step_of(name)
    for _ in range(3):
        if watched:
            recorded(model, step)
        else:
            step()
    return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def in_own_process(*words: str) -> dict[str, Any]:
    """Measure one thing in a new process."""
    command = [sys.executable, "-m", "benchmarks.drift_recording", *words]
    answer: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return answer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", action="append", choices=MODELS, help="only this one; may be given several times")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of calls, one of them recorded [5]")
    parser.add_argument(
        "--measure", choices=("times", "plain", "watched"), help="measure one thing, and print it as JSON"
    )
    options = parser.parse_args()
    names = options.model or list(MODELS)
    if options.measure is not None:
        name = names[0]
        if options.measure == "times":
            measured = times(name, options.pairs)
        else:
            measured = peak(name, watched=options.measure == "watched")
        print(json.dumps(measured))
        return
    rows = []
    for name in names:
        words = ("--model", name, "--pairs", str(options.pairs), "--measure")
        timed = in_own_process(*words, "times")
        grown = in_own_process(*words, "watched")["peak"] - in_own_process(*words, "plain")["peak"]
        plain, watched = (statistics.median(timed[kind]) for kind in ("plain", "watched"))
        ratio = statistics.median(long / short for long, short in zip(timed["watched"], timed["plain"], strict=True))
        rows.append(
            [
                name,
                str(MODELS[name]),
                str(timed["operators"]),
                f"{plain * 1000:.0f} ms",
                f"{watched * 1000:.0f} ms",
                f"{ratio:.2f}",
                f"{grown:+.0f} MiB",
            ]
        )
        print(f"{name}: {ratio:.2f}", file=sys.stderr, flush=True)
    heads = ["model", "images", "operators", "alone", "recorded", "ratio", "memory"]
    print(table_markdown(Table(heads, rows, "lrrrrrr")))


if __name__ == "__main__":
    main()
