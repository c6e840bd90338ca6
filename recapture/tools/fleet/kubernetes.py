"""Indexed Jobs of Kubernetes: one Job for each image and type of GPU, one index a shard."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from recapture.base.errors import UsageError
from recapture.machine.pins import find_image, parse_capability
from recapture.tools.fleet.folder import ATTEMPTS, SHARDS
from recapture.tools.fleet.work import GPU_CAPABILITIES
from recapture.tools.fleet.yaml_text import to_yaml

if TYPE_CHECKING:
    from recapture.tools.fleet.work import MatrixWork, WorkTask

RETRIES = 2
"""Number of times that a shard is tried again."""

_NAME_LIMIT = 63 - len("-99999-xxxxx")
"""Characters of a Job's name: its pods are called NAME-INDEX-xxxxx, and have that as their host name."""

_RUN = r"""shard=$$((JOB_COMPLETION_INDEX + 1))
task=NAME.$$shard-of-COUNT
attempt=/results/ATTEMPTS/$$task.$$POD
done=/results/SHARDS/$$task
if [ -e "$$done" ]; then exit 0; fi
mkdir -p "$$attempt" /results/SHARDS || exit 3
child=
trap '[ -z "$$child" ] || kill -TERM "$$child"' TERM
recapture run --device DEVICE --shard "$$shard/COUNT" ARGUMENTS--results "$$attempt" &
child=$$!
wait "$$child"; status=$$?
while kill -0 "$$child" 2>/dev/null; do wait "$$child"; status=$$?; done
end='{"schema": 1, "task": "%s", "status": %s, "node": "%s"}\n'
printf "$$end" "$$task" "$$status" "$$NODE" >"$$attempt/attempt.json"
there() { find "$$attempt" -name "$$1" | grep -q .; }
case $$status in
  0 | 1 | 2)
    if there conformance.jsonl && ! there '*.partial.jsonl'; then
      mv -T "$$attempt" "$$done" 2>/dev/null || echo "another attempt was first"
      exit 0
    fi ;;
esac
exit "$$status"
"""
"""The shell's program: an attempt in its own folder, published by a rename; ``$$`` is the kubelet's ``$``."""

_BEGIN = """\
# Written by `recapture plan --format kubernetes`. The volume claim `recapture-results` is one that every node can write
# (ReadWriteMany). When the Jobs have ended: `recapture merge FOLDER`, with the folder of that volume.
"""


def kubernetes_jobs(work: MatrixWork, *, registry: str, minutes: int) -> str:
    """Return the Jobs as YAML documents; `registry` is put before the images' tags, `minutes` is a shard's deadline.

    Raises UsageError for work that is not done in the images' own containers.
    """
    if work.via != "docker":
        raise UsageError("Kubernetes runs the images' own containers: choose --inside docker")
    documents = []
    for image, gpu in dict.fromkeys((task.image, task.gpu) for task in work.tasks):
        tasks = [task for task in work.tasks if (task.image, task.gpu) == (image, gpu)]
        documents.append(to_yaml(_job(work, tasks[0], registry, minutes)))
    return _BEGIN + "---\n".join(documents)


def _job(work: MatrixWork, task: WorkTask, registry: str, minutes: int) -> dict[str, Any]:
    name = re.sub(r"[^a-z0-9]+", "-", f"recapture-{task.image}-{task.gpu or task.device}".lower())
    labels = {"app.kubernetes.io/name": "recapture"}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name[:_NAME_LIMIT].strip("-"), "labels": labels},
        "spec": {
            "completionMode": "Indexed",
            "completions": task.shards,
            "parallelism": task.shards,
            "backoffLimitPerIndex": RETRIES,
            "maxFailedIndexes": task.shards,  # all may fail: each is tried, and the Job names those that did
            "activeDeadlineSeconds": (RETRIES + 1) * minutes * 60,
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {
                "rules": [
                    # Preempted, evicted, or its node is gone: started again, uncounted.
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                    # Bad input fails again. What matches no rule, such as 3 or 137, counts as a try.
                    {
                        "action": "FailIndex",
                        "onExitCodes": {"containerName": "recapture", "operator": "In", "values": [2]},
                    },
                ]
            },
            "template": {"metadata": {"labels": labels}, "spec": _pod(work, task, registry)},
        },
    }


def _pod(work: MatrixWork, task: WorkTask, registry: str) -> dict[str, Any]:
    limits = {"cpu": "8", "memory": "32Gi"} | ({"nvidia.com/gpu": "1"} if task.gpu else {})
    container = {
        "name": "recapture",
        "image": f"{registry}{find_image(task.image).tag}",
        "command": ["sh", "-c", _program(work, task)],
        "env": [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "resources": {"limits": limits},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "results", "mountPath": "/results"},
            {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - in the container
            {"name": "shm", "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }
    pod: dict[str, Any] = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 60,
    }
    if task.gpu:
        pod["nodeSelector"] = _gpu_labels(task)
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return pod | {
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "results", "persistentVolumeClaim": {"claimName": "recapture-results"}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "8Gi"}},
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "2Gi"}},
        ],
    }


def _gpu_labels(task: WorkTask) -> dict[str, str]:
    """Return the labels that gpu-feature-discovery gives to a node with this capability."""
    major, minor = parse_capability(GPU_CAPABILITIES[str(task.gpu)])
    return {"nvidia.com/gpu.compute.major": str(major), "nvidia.com/gpu.compute.minor": str(minor)}


def _program(work: MatrixWork, task: WorkTask) -> str:
    """Return the shell's program for all shards of an image."""
    arguments = f"{shlex.join(work.arguments)} ".replace("$", "$$") if work.arguments else ""
    words = {
        "NAME": f"{task.image}.{task.gpu or task.device}",
        "COUNT": str(task.shards),
        "DEVICE": task.device,
        "ATTEMPTS": ATTEMPTS,
        "SHARDS": SHARDS,
        "ARGUMENTS": arguments,
    }
    return re.sub("|".join(words), lambda found: words[found[0]], _RUN)
