"""What is wrong with this machine or installation that would look like a compiler's fault.

`examine` runs every check; `explain` says which failing check an error is due to. The checks are in `toolchain_checks`
(compilers, headers), `package_checks` (versions that do not go together), `storage_checks` (directories, memory) and
`gpu_checks`; each is one small function that carries the text its fault shows up as.
"""

from recapture.machine.doctor import (  # noqa: F401 - importing them registers their checks
    gpu_checks,
    package_checks,
    storage_checks,
    toolchain_checks,
)
from recapture.machine.doctor.register import Check, examine, explain

__all__ = ["Check", "examine", "explain"]
