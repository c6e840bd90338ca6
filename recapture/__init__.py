"""What happens to PyTorch code when the torch version, the packages, the GPU or the way graphs are captured changes."""

from __future__ import annotations

from recapture.declare.case import case
from recapture.declare.compiler import Compiler, compiler
from recapture.declare.generated import case_for_each
from recapture.declare.workload import workload

__all__ = ["Compiler", "__version__", "case", "case_for_each", "compiler", "workload"]

__version__ = "0.1.0"
