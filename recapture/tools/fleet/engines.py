"""What the example files for GitHub Actions and Kubernetes need to know of a matrix."""

from __future__ import annotations

import re
from typing import Any

from recapture.base.errors import UsageError
from recapture.machine.pins import find_image, parse_capability
from recapture.tools.fleet.work import GPU_CAPABILITIES, MatrixWork, WorkTask

MOST_JOBS = 256
"""The most jobs that GitHub makes of a matrix."""

MARGIN = 15
"""Minutes that a job of GitHub has for what comes before and after its shard."""

RETRIES = 2
"""Number of times that Kubernetes tries a shard again: `backoffLimitPerIndex` in the example file."""

_NAME_LIMIT = 63 - len("-99999-xxxxx")
"""Characters of a Job's name: its pods are called NAME-INDEX-xxxxx, and have that as their host name."""


def github_matrix(work: MatrixWork, *, minutes: int) -> dict[str, Any]:
    """Return the matrix of ``examples/fleet/matrix.yml``, one entry a shard; `minutes` is the time that it may take.

    Raises UsageError for more jobs than a matrix may have.
    """
    if len(work.tasks) > MOST_JOBS:
        raise UsageError(
            f"{len(work.tasks)} jobs, and GitHub takes {MOST_JOBS} of a matrix: choose fewer --shards or images"
        )
    return {
        "include": [
            {
                "task": task.name,
                "runner": ["self-hosted", "linux", task.gpu] if task.gpu else ["ubuntu-latest"],
                "image": task.image,
                "via": work.via,
                "device": task.device,
                "shard": str(task.part),
                "arguments": work.arguments,
                "minutes": minutes,
                "job_minutes": minutes + MARGIN,
            }
            for task in work.tasks
        ]
    }


def kubernetes_patches(work: MatrixWork, *, registry: str, minutes: int) -> list[dict[str, Any]]:
    """Return a patch of ``examples/fleet/job.yaml`` for each image and type of GPU.

    `registry` is put before the images' tags, `minutes` is a shard's deadline. The patches are strategic merges: lists
    are merged by name, and null removes. Raises UsageError for work that is not done in the images' own containers.
    """
    if work.via != "docker":
        raise UsageError("Kubernetes runs the images' own containers: choose --inside docker")
    first_tasks = {(task.image, task.gpu): task for task in reversed(work.tasks)}
    return [_patch(work, task, registry, minutes) for task in reversed(first_tasks.values())]


def _patch(work: MatrixWork, task: WorkTask, registry: str, minutes: int) -> dict[str, Any]:
    name = re.sub(r"[^a-z0-9]+", "-", f"recapture-{task.image}-{task.gpu or task.device}".lower())
    arguments = [word.replace("$", "$$") for word in work.arguments]  # the kubelet expands $(NAME)
    container: dict[str, Any] = {
        "name": "recapture",
        "image": f"{registry}{find_image(task.image).tag}",
        "args": ["--device", task.device, *arguments],
        "env": [
            {"name": "SHARDS", "value": str(task.shards)},
            {"name": "FOLDER", "value": task.gpu or task.device},
        ],
    }
    pod: dict[str, Any] = {"containers": [container]}
    if task.gpu:
        major, minor = parse_capability(GPU_CAPABILITIES[task.gpu])
        pod["nodeSelector"] = {
            "nvidia.com/gpu.compute.major": str(major),
            "nvidia.com/gpu.compute.minor": str(minor),
        }
    else:
        container["resources"] = {"limits": {"nvidia.com/gpu": None}}
        pod |= {"nodeSelector": None, "tolerations": None}
    return {
        "metadata": {"name": name[:_NAME_LIMIT].strip("-")},
        "spec": {
            "completions": task.shards,
            "parallelism": task.shards,
            "maxFailedIndexes": task.shards,
            "activeDeadlineSeconds": (RETRIES + 1) * minutes * 60,
            "template": {"spec": pod},
        },
    }
