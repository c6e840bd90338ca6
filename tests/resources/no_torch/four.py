"""Tasks for servers without torch."""

import json
import os


def answer(_payload, _enter):
    """Return the number four."""
    return b"4.0"


def gpus(_payload, _enter):
    """Return the environment's list of visible GPUs, or null."""
    return json.dumps(os.environ.get("CUDA_VISIBLE_DEVICES")).encode()
