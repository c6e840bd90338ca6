"""Says when a server that starts or preloads will not get ready: it stands still, or takes far too long.

A machine with other work slows a start down as much as it likes. Only time in which the server uses no processor shows
that it hangs.
"""

from __future__ import annotations

import time

from recapture.pool.processes import cpu_seconds

STILL_SECONDS = 300.0
"""Seconds that a server may use no processor while it starts or preloads; a cold disk can keep it for a minute."""

MOST_SECONDS = 1800.0
"""Seconds that a server may take to start or to preload. Compiling C++ takes minutes on a machine with other work."""

WORK_SECONDS = 1.0
"""Seconds of processor time that show that a server works."""

LOOK_SECONDS = 5.0
"""Seconds between two looks at a server's processor time."""

IMPORTING = "it imported torch"

DOING = {
    "bare": "it imported modules",
    "light": "it imported torch.compile",
    "cuda": "it imported Inductor",
    "cuda_aoti": "it asked the C++ compiler for its instruction sets",
    "capture": "it captured a first graph",
    "codegen": "it compiled C++ for a first graph",
    "aoti": "it compiled and packaged a first program",
}
"""What a server does for each level of `torch_preload.preload`."""


class ServerStart:
    """One step of a server's start, from now on; `pid` is the server's process."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.began = self.active = time.monotonic()
        self.used = cpu_seconds(pid)

    @property
    def patience(self) -> float:
        """Seconds until the next look."""
        return min(LOOK_SECONDS, STILL_SECONDS / 4)

    def failed(self, doing: str) -> str | None:
        """Return in a sentence why the server will not get ready; None as long as it works. `doing` says at what."""
        now, used = time.monotonic(), cpu_seconds(self.pid)
        if used >= self.used + WORK_SECONDS:
            self.active, self.used = now, used
        if now - self.active >= STILL_SECONDS:
            return f"the worker server stood still for {now - self.active:.0f} s while {doing}"
        if now - self.began >= MOST_SECONDS:
            return f"the worker server was not ready after {now - self.began:.0f} s; at the end, {doing}"
        return None
