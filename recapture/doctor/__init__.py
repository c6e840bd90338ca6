"""What is wrong with this machine or installation that would look like a compiler's fault.

`examine` runs every check; `explain` says which failing check an error is due to; `render` prints them. The checks are
in `toolchain` (compilers, headers), `packages` (versions that do not go together), `places` (directories, memory) and
`gpu`; each is one small function that carries the text its fault shows up as.
"""

from __future__ import annotations

from recapture.doctor import gpu, packages, places, toolchain  # noqa: F401 - importing them registers their checks
from recapture.doctor.checks import Check, examine, explain
from recapture.doctor.table import render

__all__ = ["Check", "examine", "explain", "render"]
