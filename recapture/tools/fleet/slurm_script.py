"""An sbatch array: one task a shard, each attempt in a folder of its own, published by one rename."""

from __future__ import annotations

import hashlib
import re
import shlex
from dataclasses import dataclass
from string import Template
from typing import TYPE_CHECKING, Literal

from recapture.base.errors import UsageError
from recapture.base.option_fields import option
from recapture.tools.fleet.commands import words_of_task
from recapture.tools.fleet.folder import ATTEMPTS, LOGS, SHARDS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from recapture.tools.fleet.work import MatrixWork

TRIES = 3
"""Number of attempts at a shard that the machine broke."""

_PLAIN_PATH = re.compile(r"/[\w./+=:@,-]*", re.ASCII)
"""Paths that mean the same in a line of #SBATCH, where ``%`` and white space have a meaning, and in the shell."""


@dataclass(frozen=True, kw_only=True)
class SlurmOptions:
    """What an sbatch array asks of the cluster."""

    gpu_by: Literal["gres", "constraint"] = option(
        "--gpu-by", default="gres", help="How the type of GPU is asked for: --gres=gpu:TYPE:1, or a node's feature."
    )
    partition: str | None = option("--partition", default=None, metavar="NAME", help="Partition of the cluster.")
    minutes: int = option("--minutes", default=240, between=(2, 10080), help="Minutes that a shard may take.")
    at_once: int | None = option("--at-once", default=None, between=(1, None), help="The most shards at a time.")
    sbatch: tuple[str, ...] = option(
        "--sbatch", default=(), metavar="OPTION", help="A further option for sbatch, as in --sbatch=--account=lab."
    )


_SCRIPT = Template(
    r"""#!/usr/bin/env bash
# Written by recapture: one shard of a matrix a task. `recapture matrix --via slurm` submits it, waits, and merges.
#
# An attempt writes to a folder of its own, because Slurm may start a shard anew while the first attempt is still alive
# on a node that does not answer. It is published by one rename, which fails if another attempt was first. An attempt
# that the machine broke is tried again, twice: it found the machine unfit (3, 75) or was killed. One that was told to
# end, by scancel or its deadline, is not; nor is one that ends with another status, whatever the compilers did in it.
$directives
set -uo pipefail

folder=$folder
case $$SLURM_ARRAY_TASK_ID in
$tasks
    *) echo "recapture: no task $$SLURM_ARRAY_TASK_ID" >&2; exit 2 ;;
esac
tries=$${SLURM_RESTART_COUNT:-0}
# Not SLURM_JOB_ID: in the last task of an array that is the whole array's.
id=$${SLURM_ARRAY_JOB_ID}_$$SLURM_ARRAY_TASK_ID
shard=$$folder/$shards/$$task
attempt=$$folder/$attempts/$$task.$$id.$$tries
if [ -e "$$shard" ]; then exit 0; fi # another attempt was first
if [ "$$tries" -ge $most ]; then echo "recapture: $$task: given up after $most attempts" >&2; exit 3; fi
mkdir -p "$$attempt" || exit 3

child= told=
# What is finished is kept. The file tells that somebody wanted the end, even if SIGKILL comes before all is written.
trap 'told=yes; : >"$$attempt/told"; [ -z "$$child" ] || kill -TERM "$$child" 2>/dev/null' TERM
$command "$$@" --results "$$attempt" &
child=$$!
wait "$$child"; status=$$?
while kill -0 "$$child" 2>/dev/null; do wait "$$child"; status=$$?; done

printf '{"schema": 1, "task": "%s", "status": %s, "node": "%s"}\n' "$$task" "$$status" "$${SLURMD_NODENAME:-}" \
    >"$$attempt/attempt.json"
finished() { # every planned cell has its record
    compgen -G "$$attempt/*/*/conformance.jsonl" >/dev/null && ! compgen -G "$$attempt/*/*/*.partial.jsonl" >/dev/null
}
case $$status in
    0 | 1 | 2) # 2 is also the status of a whole run with a suite that this torch cannot import
        if finished; then
            mv -T "$$attempt" "$$shard" 2>/dev/null || echo "recapture: $$task: another attempt was first" >&2
            exit 0
        fi
        exit "$$status" ;;
    3 | 75) ;;
    *) if [ -n "$$told" ] || [ "$$status" -lt 128 ]; then exit "$$status"; fi ;;
esac
if [ "$$tries" -lt $last ]; then scontrol requeue "$$id"; fi
exit "$$status"
"""
)


def job_name(folder: Path) -> str:
    """Return the name of the jobs of a folder, by which a submitter that starts again finds them."""
    return f"recapture-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]}"


def array_scripts(folder: Path, work: MatrixWork, options: SlurmOptions) -> dict[str, tuple[str, list[int]]]:
    """Return the scripts by file name, each with the indices of its tasks: one script for each type of GPU.

    The indices are those of `work.tasks`, so that tasks of two scripts never share one. Raises UsageError for a folder
    whose path has characters that mean something to Slurm.
    """
    folder = folder.resolve()
    if not _PLAIN_PATH.fullmatch(str(folder)):
        raise UsageError(f"{folder}: Slurm would misread this path; choose a folder of plain letters with --folder")
    scripts: dict[str, tuple[str, list[int]]] = {}
    for gpu in dict.fromkeys(task.gpu for task in work.tasks):
        indices = [index for index, task in enumerate(work.tasks) if task.gpu == gpu]
        name = f"array-{gpu}.sbatch" if gpu else "array.sbatch"
        scripts[name] = (_script(folder, work, options, gpu, indices), indices)
    return scripts


def _script(folder: Path, work: MatrixWork, options: SlurmOptions, gpu: str | None, indices: Sequence[int]) -> str:
    command, *_ = (words_of_task(folder, work, work.tasks[index])[0] for index in indices)
    lines = []
    for index in indices:
        task = work.tasks[index]
        _, words = words_of_task(folder, work, task)
        lines.append(f"    {index}) task={task.name}; set -- {shlex.join(words)} ;;")
    return _SCRIPT.substitute(
        directives="\n".join(f"#SBATCH {one}" for one in _directives(folder, options, gpu, indices)),
        folder=shlex.quote(str(folder)),
        tasks="\n".join(lines),
        command=shlex.join(command),
        shards=SHARDS,
        attempts=ATTEMPTS,
        most=TRIES,
        last=TRIES - 1,
    )


def _directives(folder: Path, options: SlurmOptions, gpu: str | None, indices: Sequence[int]) -> list[str]:
    at_once = f"%{options.at_once}" if options.at_once else ""
    found = [
        f"--job-name={job_name(folder)}",
        f"--array={indices[0]}-{indices[-1]}{at_once}",
        f"--output={folder}/{LOGS}/%A_%a.log",
        "--open-mode=append",
        "--requeue",
        "--signal=B:TERM@60",
        f"--time={options.minutes}",
    ]
    if options.partition:
        found.append(f"--partition={options.partition}")
    if gpu:
        found += [f"--gres=gpu:{gpu}:1"] if options.gpu_by == "gres" else ["--gres=gpu:1", f"--constraint={gpu}"]
    for one in options.sbatch:
        if not re.fullmatch(r"--?[a-z][\w-]*(=[^\s'\"#]*)?", one, re.ASCII):
            raise UsageError(f"--sbatch {one!r}: write one option without white space, as in --sbatch=--account=lab")
    return [*found, *options.sbatch]
