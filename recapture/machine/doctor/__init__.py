"""Finds faults of this machine or installation that would look like a compiler's fault.

`examine` runs every check; `explain` returns the failing check that caused an error. The checks are in
`toolchain_checks` (compilers, headers), `package_checks` (incompatible versions), `storage_checks` (directories,
memory) and `gpu_checks`. Each is a small function with a pattern that matches the errors its fault causes.
"""

from recapture.machine.doctor import (  # noqa: F401 - importing them registers their checks
    gpu_checks,
    package_checks,
    storage_checks,
    toolchain_checks,
)
from recapture.machine.doctor.register import Check, examine, explain

__all__ = ["Check", "examine", "explain"]
