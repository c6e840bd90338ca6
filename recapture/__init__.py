"""What happens to PyTorch code when the torch version, the packages, the GPU or the way graphs are captured changes."""

from __future__ import annotations

from recapture.cases import case
from recapture.compilers.base import Compiler, compiler
from recapture.workloads import workload

__all__ = ["Compiler", "__version__", "case", "compiler", "workload"]

__version__ = "0.1.0"

callers_directory: str | None = None
"""What `recapture.program` has put at the end of the path; nothing there is installed."""
