"""Tasks for a worker server that reuses processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from recapture.pool.worker import Reusable

RAN: list[str] = []
"""What ran in this process."""


def note(payload: bytes, enter) -> bytes:
    """Return the process, its directories and what ran in it before; then do what the payload says."""
    word = json.loads(payload)
    enter(word)
    print(f"printed by {word}")
    RAN.append(word)
    facts = {
        "pid": os.getpid(),
        "before": RAN[:-1],
        "cwd": str(Path.cwd()),
        "files": [path.name for path in Path.cwd().iterdir()],
        "TMPDIR": os.environ["TMPDIR"],
    }
    Path("left").touch()
    if word == "leaves a process":
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", os.environ["PLANTED_MARK"]])
    if word == "sleeps":
        time.sleep(0.8)
    if word == "hangs":
        time.sleep(600)
    if word == "dies":
        os._exit(3)
    if word == "closes its files":
        os.closerange(3, 1000)
    result = json.dumps(facts).encode()
    return result if word == "is not reusable" else Reusable(result)
