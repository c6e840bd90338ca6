"""Examples of every command, which its help and the reference show."""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "list": ("recapture list control_flow", "recapture list --compilers --json"),
    "check": (
        "recapture check my_model.py:Net --input 8x3x224x224",
        "recapture check torchvision:resnet18 --compiler jit.trace --json",
        "recapture check my_model.py:Net --input 8x4 --across 2.6.0,2.11.0 --with requirements.txt",
    ),
    "migrate": ("recapture migrate my_model.py:Net --input 8x3x224x224",),
    "upgrade": (
        "recapture upgrade --across 2.6.0,2.11.0 -- pytest tests/",
        "recapture upgrade --across 2.11.0 --baseline recapture-baseline.json -- pytest tests/",
    ),
    "run": (
        "recapture run control_flow --compiler jit.trace --compiler compile",
        "recapture run control_flow::branch_on_sum --image torch2.6.0-cu124",
    ),
    "repro": (
        "recapture repro control_flow::branch_on_sum::jit.trace > repro.py",
        "recapture repro control_flow::branch_on_sum::jit.trace --upstream --reduce",
    ),
    "reduce": ("recapture reduce control_flow::branch_on_sum::jit.trace",),
    "explain": (
        "recapture explain control_flow::branch_on_sum::jit.trace",
        "recapture explain graphs::bar::compile --debug",
    ),
    "stage": ("recapture stage types::signed_zero::compile",),
    "bench": (
        "recapture bench --model torchvision:resnet18 --input 8x3x224x224 --compiler compile",
        "recapture bench --list",
    ),
    "report": (
        "recapture report results/torch2.11.0-cu130/cpu --html",
        "recapture report results/torch2.11.0-cu130/cpu --from jit.script --to export",
        "recapture report --benchmark-json speeds.json --benchmark-format github-action-benchmark",
    ),
    "diff": (
        "recapture diff results/torch2.6.0-cu124/cpu results/torch2.11.0-cu130/cpu",
        "recapture diff before/ after/ --fail-on regression",
    ),
    "bisect": (
        "recapture bisect control_flow::branch_on_sum::jit.trace --no-run",
        "recapture bisect --good 2.6.0 --bad 2.11.0 -- pytest tests/test_it.py",
    ),
    "history": ("recapture history control_flow::branch_on_sum", "recapture history --issues --json"),
    "drift": (
        "recapture drift my_model.py:Net --input 8x3x64x64 --across 2.6.0,2.11.0",
        "recapture drift my_model.py:Net --input 8x3x64x64 --save on-this-machine",
    ),
    "generate": (
        "recapture generate --operator sum --compiler export",
        "recapture generate --source python --programs 50 --json",
    ),
    "lint": ("recapture lint model.py", "recapture lint src --torch 2.14.1 --compiler export --output-format github"),
    "data": ("recapture data", "recapture data --results results --output build/recapture-data"),
    "site": ("recapture site", "recapture site --data data.json.gz --output public"),
    "results": ("recapture results verify results/torch2.6.0-cu124/cpu",),
    "results verify": ("recapture results verify results", "recapture results verify /tmp/theirs --json"),
    "matrix": ("recapture matrix --image torch2.6.0-cu124,torch2.11.0-cu130 control_flow",),
    "plan": ("recapture plan --image all --shards 4 --json",),
    "merge": ("recapture merge shard-1/ shard-2/ --results results",),
    "doctor": ("recapture doctor", "recapture doctor --device cuda --json"),
    "images": ("recapture images list --json",),
    "images list": ("recapture images list --gpu 7.0",),
    "images lock": ("recapture images lock torch2.11.0-cu130",),
    "images build": ("recapture images build torch2.11.0-cu130",),
    "images run": ("recapture images run torch2.6.0-cu124 basic_use --timeout 60",),
    "images clean": ("recapture images clean torch2.6.0-cu124",),
}
"""Command lines by the command that they show; each is parsed by a test."""


def epilog(command: str) -> str | None:
    """Return what stands below the options in a command's help; None if the command has no example."""
    lines = EXAMPLES.get(command, ())
    heading = "Example:" if len(lines) == 1 else "Examples:"
    return "\n".join(["\b", heading, *(f"  {line}" for line in lines)]) if lines else None
