"""A benchmark on workloads that take no time and compilers that fail in every way, and how to run such ones."""

from pathlib import Path

import msgspec
import pytest

from recapture.command.main import main
from recapture.tools.speed.figures import derive
from recapture.tools.speed.speedups import read_speedups

TINY = str(Path(__file__).parent / "resources" / "speedups" / "tiny.py")
QUICK = ("--processes", "2", "--seconds", "0.2", "--threads", "1")


def bench(*arguments):
    with pytest.raises(SystemExit) as left:
        main(["bench", *arguments])
    return left.value.code


def only_speedups(folder):
    [path] = folder.rglob("speedups-cpu.json")
    return read_speedups(path)


def row(measured, workload, compiler):
    [wanted] = [
        entry
        for entry in measured.rows
        if entry.workload == workload and str(entry.configuration) == f"{compiler} fp32"
    ]
    return wanted


def measure(results):
    """Run everything planted, and return what the file holds."""
    planted = ("slightly-wrong", "wrong-later", "raises", "dies", "runs-out-of-memory")
    addresses = [f"tiny_eval::{name}" for name in ("eager", "jit.trace", "jit.trace:frozen", *planted)]
    addresses += ["tiny_train::jit.trace", "tiny_train::wrong-gradients", "drops_out::fx"]
    figures = ["tiny_eval::fx", "tiny_eval::slower"]  # whose figures the tests look at
    options = ("--results", str(results), "--threads", "1")
    assert bench(TINY, "tiny_eval::hangs", *options, "--seconds", "0.2", "--timeout", "5") == 0
    assert bench(TINY, *figures, *options, "--seconds", "0.2", "--processes", "4") == 0
    assert bench(TINY, *addresses, *options, "--seconds", "0.1", "--processes", "2") == 0
    return quiet(only_speedups(results))


def quiet(speedups):
    """The same as it would be on a machine of one's own: whatever else runs beside the tests decides no verdict."""

    def alone(process):
        conditions = msgspec.structs.replace(process.conditions, cpu_others=0.0, steal=0.0)
        return msgspec.structs.replace(process, conditions=conditions)

    rows = (msgspec.structs.replace(entry, processes=tuple(map(alone, entry.processes))) for entry in speedups.rows)
    return msgspec.structs.replace(speedups, rows=tuple(map(derive, rows)))
