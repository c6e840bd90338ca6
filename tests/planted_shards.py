"""A command `recapture run --publish` whose run records planted cells at once, or ends as a test wants."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from unittest import mock

from planted_images import PlantedImages

CELLS = 4
"""Cells of the planted run; those of a shard are every I-th of them."""

COMMAND = """#!/bin/sh
PYTHONPATH={repository}:{tests} exec {python} {file} "$@"
"""


class PlantedShards:
    """A folder with the planted command, which takes its modes from a file, one line a run.

    A mode is the exit status of a complete run, or a name that `planted_run` knows.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.images = images = PlantedImages(root)
        self.command = root / "bin" / "recapture"
        tests = Path(__file__).parent
        text = COMMAND.format(python=sys.executable, repository=tests.parent, tests=tests, file=__file__)
        self.command.write_text(text)
        self.command.chmod(0o755)
        self.begun = root / "begun"
        self.variables = {
            **os.environ,
            "PATH": os.pathsep.join([str(images.binaries), os.environ["PATH"]]),
            "PLANTED_SHARDS": str(root),
            "PLANTED_DOCKER": str(images.docker),
        }

    def start(self, *arguments: object, kill: str = "") -> subprocess.Popen[str]:
        """Start ``recapture run`` with these arguments; `kill` is the moment at which SIGKILL ends it."""
        return subprocess.Popen(
            [self.command, "run", *map(str, arguments)],
            env={**self.variables, "PLANTED_KILL": kill},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object, kill: str = "") -> tuple[int, str]:
        """Run ``recapture run`` with these arguments; return its exit status and what it printed for people."""
        with self.start(*arguments, kill=kill) as process:
            _, err = process.communicate(timeout=60)
        return process.returncode, err

    def modes(self, *names: str) -> None:
        """Say how the next runs end."""
        (self.root / "modes").write_text("".join(f"{name}\n" for name in names))

    def arguments_of_runs(self) -> list[list[str]]:
        """Return the arguments of each run so far."""
        path = self.root / "asked"
        return [line.split("\t") for line in path.read_text().splitlines()] if path.exists() else []


def kill_at(moment: str | None) -> None:
    """Let SIGKILL end this process at a moment of the protocol that no run can choose."""
    rename, mkdir = Path.rename, Path.mkdir

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def rename_and_die(path: Path, target: Path) -> None:
        rename(path, target)
        die()

    def make_and_die(path: Path, *arguments: object, **options: object) -> None:
        mkdir(path, *arguments, **options)
        if path.parent.name == "attempts":
            die()

    faults = {
        "when its folder was made": ("mkdir", make_and_die),
        "before the rename": ("rename", die),
        "after the rename": ("rename", rename_and_die),
    }
    if moment:
        method, fault = faults[moment]
        mock.patch.object(Path, method, fault).start()


def planted_run(context, _where, *, results, **_options):
    """Take the place of a run in an image: record the cells of the shard, and end as the next mode says."""
    from recapture.base.errors import EnvironmentUnfitError, UsageError
    from recapture.command.run import _words
    from recapture.records.record import CONFORMANCE, PARTIAL, Record, write_jsonl
    from recapture.records.shard_files import ShardCell, ShardPlan, write_shard
    from recapture.records.verdicts import Verdict
    from recapture.run.shards import parse_shard

    root = Path(os.environ["PLANTED_SHARDS"])
    with (root / "asked").open("a") as file:
        file.write("\t".join(sys.argv[1:]) + "\n")
    mode, _, following = (root / "modes").read_text().partition("\n")
    (root / "modes").write_text(following)
    shard = parse_shard(context.params["shard"])
    rows = [ShardCell(f"s::c{number}", "fx", "cpu", "h", number % shard.of + 1) for number in range(CELLS)]
    words = _words(context.params)
    selection = [" ".join(words)] if words else []
    directory = results / "a" / "cpu"
    directory.mkdir(parents=True)
    write_shard(directory, ShardPlan(number=shard.number, count=shard.of, selection=selection, cells=rows))
    records = [
        Record(case=row.case, compiler="fx", device="cpu", case_hash="h", verdict=Verdict.PASS)
        for row in rows
        if row.shard == shard.number
    ]
    if mode == "empty":
        return 2
    if mode in ("partial", "hang", "kill"):
        write_jsonl(directory / PARTIAL, records[:1])
    if mode == "partial":
        return 2
    if mode == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "hang":
        (root / "begun").touch()
        time.sleep(60)
    if mode == "short":  # ends well, and one planned cell has no record
        write_jsonl(directory / CONFORMANCE, records[1:])
        return 0
    if mode == "wait":  # until the test lets all that wait go on
        (root / f"waits-{os.getpid()}").touch()
        while not (root / "go").exists():
            time.sleep(0.001)
    write_jsonl(directory / CONFORMANCE, records)
    if mode == "kill complete":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "race":  # another attempt at the shard publishes meanwhile
        other_shards = results.parent.parent / "shards" / results.name.rpartition(".")[0]
        other_shards.mkdir()
        (other_shards / "first").touch()
        return 0
    if mode == "3":
        raise EnvironmentUnfitError("planted: unfit")
    if mode == "usage":
        raise UsageError("planted: bad input")
    return 0 if mode == "wait" else int(mode)


if __name__ == "__main__":
    from recapture.command import run
    from recapture.command.main import main
    from recapture.machine import pins

    mock.patch.object(pins, "docker_directory", return_value=Path(os.environ["PLANTED_DOCKER"])).start()
    mock.patch.object(run, "run_in_images", planted_run).start()
    kill_at(os.environ.get("PLANTED_KILL"))
    if "--image" not in sys.argv:  # as in a container, whose packages say which image it is
        sys.argv[2:2] = ["--image", "a"]
    main()
