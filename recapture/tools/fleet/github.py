"""A workflow of GitHub Actions: one job a shard, on runners with the GPU, and one that merges."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from recapture.base.errors import UsageError
from recapture.tools.fleet.yaml_text import to_yaml

if TYPE_CHECKING:
    from recapture.tools.fleet.work import MatrixWork, WorkTask

MOST_JOBS = 256
"""The most jobs that GitHub makes of a matrix."""

_CHECKOUT = "actions/checkout@11bd71901bbe5b1630ceea73d27597364c9af683"  # v4.2.2
_PYTHON = "actions/setup-python@a26af69be951a213d495a4c3e4e4022e16d87065"  # v5.6.0
_UPLOAD = "actions/upload-artifact@ea165f8d65b6e75b540449e92b4886f43607fa02"  # v4.6.2
_DOWNLOAD = "actions/download-artifact@d3f86a106a0bac45b974a628896c90dbdf5c8093"  # v4.3.0

_MARGIN = 15
"""Minutes that a job has for what comes before and after its shard."""

_RUN = """\
there() { compgen -G "$RESULTS/*/*/$1" > /dev/null; }
for attempt in 1 2 3; do
  status=0
  .venv/bin/recapture run --image "$IMAGE" --via "$VIA" --device "$DEVICE" --shard "$SHARD/$SHARDS" \\
    ARGUMENTS--results "$RESULTS" || status=$?
  # 3: this machine is unfit, which may pass. 2: also a whole run with a suite that this torch cannot import.
  if [ "$status" -le 2 ] && there conformance.jsonl && ! there "*.partial.jsonl"; then exit 0; fi
  if [ "$status" != 3 ]; then break; fi
  echo "attempt $attempt found the machine unfit"
done
exit "$status"
"""

_BEGIN = """\
# Written by `recapture plan --format github`. GitHub retries nothing by itself: "Re-run failed jobs" runs the shards
# that are missing, and merges again. The runners of a type of GPU have its name as a label.
"""


def github_workflow(work: MatrixWork, *, minutes: int) -> str:
    """Return the workflow as YAML; raises UsageError for more jobs than a matrix may have.

    `minutes` is the time that a shard may take. All jobs divide the run by the durations that are committed.
    """
    if len(work.tasks) > MOST_JOBS:
        raise UsageError(
            f"{len(work.tasks)} jobs, and GitHub takes {MOST_JOBS} of a matrix: choose fewer --shards or images"
        )
    if any("${{" in word for word in work.arguments):
        raise UsageError("an argument with ${{ would be an expression of the workflow")
    jobs = {"shard": _shard_job(work, minutes), "merge": _merge_job()}
    workflow = {"name": "matrix", "on": {"workflow_dispatch": {}}, "permissions": {"contents": "read"}, "jobs": jobs}
    return _BEGIN + to_yaml(workflow)


def _shard_job(work: MatrixWork, minutes: int) -> dict[str, Any]:
    arguments = f"{shlex.join(work.arguments)} " if work.arguments else ""
    names = ("image", "device", "shard", "shards")
    return {
        "name": "${{ matrix.task }}",
        "strategy": {"fail-fast": False, "matrix": {"include": [_entry(task) for task in work.tasks]}},
        "runs-on": "${{ matrix.runner }}",
        "timeout-minutes": minutes + _MARGIN,
        "steps": [
            {"uses": _CHECKOUT, "with": {"persist-credentials": False}},
            {"run": "python3 -m venv .venv && .venv/bin/pip install -q -e '.[images]'"},
            {
                "name": "Run the shard",
                "timeout-minutes": minutes,
                "shell": "bash",
                "env": {
                    **{name.upper(): f"${{{{ matrix.{name} }}}}" for name in names},
                    "VIA": work.via,
                    "RESULTS": "${{ runner.temp }}/shard",
                },
                "run": _RUN.replace("ARGUMENTS", arguments),
            },
            _upload("${{ success() }}", "results-${{ matrix.task }}", missing="error"),
            _upload("${{ !success() }}", "attempt-${{ matrix.task }}-${{ github.run_attempt }}", missing="ignore"),
        ],
    }


def _entry(task: WorkTask) -> dict[str, Any]:
    runner = ["self-hosted", "linux", task.gpu] if task.gpu else ["ubuntu-latest"]
    return {
        "task": task.name,
        "image": task.image,
        "device": task.device,
        "shard": task.shard,
        "shards": task.shards,
        "runner": runner,
    }


def _upload(condition: str, name: str, *, missing: str) -> dict[str, Any]:
    where = {"name": name, "path": "${{ runner.temp }}/shard", "if-no-files-found": missing}
    return {"uses": _UPLOAD, "if": condition, "with": where | {"include-hidden-files": False}}


def _merge_job() -> dict[str, Any]:
    return {
        "needs": "shard",
        "if": "${{ !cancelled() }}",  # also where shards failed: what is missing is to be named
        "runs-on": "ubuntu-latest",
        "timeout-minutes": 30,
        "steps": [
            {"uses": _CHECKOUT, "with": {"persist-credentials": False}},
            {"uses": _PYTHON, "with": {"python-version": "3.11"}},
            {"run": "python3 -m venv .venv && .venv/bin/pip install -q -e ."},
            {"uses": _DOWNLOAD, "with": {"pattern": "results-*", "path": "shards"}},
            {"run": ".venv/bin/recapture merge shards --results merged"},
            {"uses": _UPLOAD, "if": "${{ !cancelled() }}", "with": {"name": "merged", "path": "merged"}},
        ],
    }
