"""Training in several processes of one machine: with gloo, by DDP or FSDP2, each with a share of the batch."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recapture.cases.own_code import TargetError
from recapture.pool.bootstrap import command
from recapture.tools.drift.facts import Task

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 60.0
"""Seconds that the other processes may take to end after the first one did."""


@contextlib.contextmanager
def other_ranks(task: Task, request: Path, rank: int) -> Iterator[None]:
    """Start the other processes of a task, if this is its first one, and connect all of them; end them afterwards."""
    if task.ranks == 1:
        yield
        return
    import torch.distributed as dist

    words = command("recapture.tools.drift.side", str(request))
    others = [subprocess.Popen([*words, str(other)]) for other in range(1, task.ranks)] if rank == 0 else []
    try:
        meeting = f"file://{Path(task.folder) / 'meeting'}"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=task.ranks)
        yield
        dist.destroy_process_group()
        for process in others:
            process.wait(PATIENCE)
    finally:
        for process in others:
            process.kill()  # nothing happens to one that has ended


def shared_among_ranks(task: Task, module: Any) -> Any:
    """Return the module as DDP or FSDP2 trains it in every process; FSDP2 changes its parameters in place.

    Raises TargetError for FSDP2 where torch does not have it.
    """
    if task.ranks == 1:
        return module
    import torch

    if task.parallel == "ddp":
        return torch.nn.parallel.DistributedDataParallel(module)
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        raise TargetError("--parallel fsdp needs torch 2.6 or newer") from None
    from torch.distributed.device_mesh import init_device_mesh

    fully_shard(module, mesh=init_device_mesh(task.device, (task.ranks,)))
    return module


def full(tensor: Any) -> Any:
    """Return the whole of a tensor whose parts are in several processes; all of them must ask for it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def mean_of_ranks(task: Task, loss: Any) -> Any:
    """Return the mean of a loss over all processes."""
    if task.ranks == 1:
        return loss
    import torch.distributed as dist

    dist.all_reduce(loss)
    return loss / task.ranks
