"""Failures of torch after which its process cannot go on, by their messages."""

from __future__ import annotations

import re

from recapture.base.exceptions import safe_text

FAILED_ASSERTION = re.compile(r"(CUDA|HIP) error: device-side assert triggered")


def is_failed_assertion_on_gpu(error: BaseException) -> bool:
    """Whether an exception means that a kernel failed an assertion: the process can no longer use the GPU."""
    return isinstance(error, RuntimeError) and bool(FAILED_ASSERTION.search(safe_text(error)))
