"""What the end-to-end tests share: one warm worker server, and runs of the real command with nothing left behind."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path

import planted_bench
import pytest
from command_lines import refused  # noqa: F401 - a fixture
from marking import (  # noqa: F401 - hooks of pytest
    pytest_collection_modifyitems,
    pytest_itemcollected,
    quick_tests_start_no_server,
)
from planted_machine import Planted
from planted_own_code import served  # noqa: F401 - a fixture
from planted_scripts import mine, printed, restored, run_script  # noqa: F401 - fixtures
from planted_upgrades import planted_releases, project  # noqa: F401 - fixtures

from recapture.command.main import _run
from recapture.pool import worker_pool
from recapture.pool.worker_pool import WorkerPool
from recapture.records.record import Record, read_jsonl
from recapture.run import preparation, runner
from recapture.tools.check import derivation, obstacles, session
from recapture.tools.explain.reduce import reducing
from recapture.tools.explain.script import printing
from recapture.tools.speed import benchmark

REPOSITORY = Path(__file__).resolve().parents[1]
SUITES = Path(__file__).parent / "resources" / "suites"

with contextlib.suppress(ImportError):
    import readline  # noqa: F401 - pytest imports it, and it puts COLUMNS into the environment that programs inherit
os.environ.pop("COLUMNS", None)
os.unsetenv("COLUMNS")  # readline puts it past os.environ


def pytest_configure():
    """Hear Ctrl-C: a shell's background job is started deaf to it, and so would be every command under test."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


class SharedPool(WorkerPool):
    """A real pool that several runs use one after the other, and that surveys the machine once."""

    @functools.cached_property
    def surveyed(self):
        return preparation.survey(self)

    def ask(self, task, payload, *, timeout):
        """Runs in one process survey the machine once, not each at its start."""

    def launch_successor(self, level, modules):
        """Runs in one process go on with the one server."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.fixture(scope="session")
def pool():
    """A worker server that imports what runs and benchmarks need; it starts when the first test uses it."""
    tasks = (derivation.PREPARE, obstacles.OBSTACLES, reducing.ATTEMPT)
    imports = (*benchmark.IMPORTS, *(task.partition(":")[0] for task in tasks))
    shared = SharedPool(device="cpu", jobs=2, imports=imports)
    yield shared
    WorkerPool.__exit__(shared, None, None, None)


def share(pool, patch):
    """Make commands in this process use the shared server instead of starting their own.

    All modules that name the class are imported above: one that is imported later would keep the shared server.
    """
    for module in (runner, benchmark, printing, session, worker_pool):  # `recapture list` takes it from the last
        patch.setattr(module, "WorkerPool", lambda **_: pool)
    for module in (runner, benchmark):
        patch.setattr(module, "survey", lambda shared: shared.surveyed)


@pytest.fixture
def warm(pool, monkeypatch):
    """The shared server, used by every command that the test runs in this process."""
    share(pool, monkeypatch)
    return pool


@pytest.fixture
def shared(pool, monkeypatch):
    """Let the reductions that commands of this process make use the shared server."""
    monkeypatch.setattr(reducing, "WorkerPool", lambda **_: contextlib.nullcontext(pool))


@pytest.fixture(scope="session")
def measured(pool, tmp_path_factory):
    """What one benchmark over every planted failure found."""
    with pytest.MonkeyPatch.context() as patch:
        share(pool, patch)
        return planted_bench.measure(tmp_path_factory.mktemp("bench"))


@dataclass
class Commands:
    """Runs ``python -m recapture`` in a directory of its own, and knows every process that came of it."""

    directory: Path
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def temporary(self) -> Path:
        return self.directory / "tmp"

    def start(self, *arguments: object, **environment: str | None) -> subprocess.Popen[str]:
        self.temporary.mkdir(exist_ok=True)
        merged = {
            **os.environ,
            "PYTHONPATH": str(REPOSITORY),
            "TMPDIR": str(self.temporary),
            "RECAPTURE_TEST": self.mark,
            "COLUMNS": "10000",
            **environment,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "recapture", *map(str, arguments)],
            cwd=self.directory,
            env={name: value for name, value in merged.items() if value is not None},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: object, **environment: str | None) -> subprocess.CompletedProcess[str]:
        with self.start(*arguments, **environment) as process:
            try:
                out, err = process.communicate(timeout=500)
            finally:
                process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def processes(self) -> list[str]:
        """Command lines of the processes that are left, of any session and whoever their parent is."""
        command_lines = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"RECAPTURE_TEST={self.mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    command_lines.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
        return command_lines

    def leftovers(self, seconds: float = 0.0) -> list[str]:
        """Processes and temporary files that are left, at once or after waiting for them to go."""
        end = time.monotonic() + seconds
        while True:
            left = [*self.processes(), *(str(path) for path in self.temporary.iterdir())]
            if not left or time.monotonic() > end:
                return left
            time.sleep(0.05)

    def signal(self, number: signal.Signals, *, but: int = 0) -> None:
        """Send a signal to every process that is left, but for one."""
        for process in Path("/proc").glob("[0-9]*"):
            try:
                marked = f"RECAPTURE_TEST={self.mark}".encode() in (process / "environ").read_bytes().split(b"\0")
                if marked and int(process.name) != but:
                    os.kill(int(process.name), number)
            except OSError:
                continue

    def close(self) -> None:
        """End what a failed test left, so that it does not disturb the next."""
        self.signal(signal.SIGKILL)


@pytest.fixture
def command(tmp_path):
    commands = Commands(tmp_path)
    yield commands
    commands.close()


@pytest.fixture(scope="module")
def module_command(tmp_path_factory):
    commands = Commands(tmp_path_factory.mktemp("command"))
    yield commands
    commands.close()


def wait_for(condition, seconds=60):
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.05)


def results_below(root: Path) -> Path:
    """The one results directory below a root."""
    (directory,) = root.glob("*/*")
    return directory


def records_below(root: Path) -> dict[str, Record]:
    """The records of the one results directory below a root, by the cell's address."""
    rows = read_jsonl(results_below(root) / "conformance.jsonl", Record)
    records = {row.cell: row for row in rows}
    assert len(records) == len(rows), "a cell has two records"
    return records


@pytest.fixture
def planted(tmp_path):
    """An environment for the doctor, with nothing wrong yet."""
    return Planted(tmp_path / "inductor")


def run_in_process(*arguments: object) -> int:
    """Do what ``recapture run`` does with these arguments, and return its exit status."""
    return _run(["run", *map(str, arguments)])
