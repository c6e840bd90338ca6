"""Compiles the suites that ship when it is imported, for servers that fork a process for each of many cells.

Each of these processes executes the file of its case several times, from the code that it inherits. No suite is
executed here.
"""

from recapture.base.paths import without_callers_directory
from recapture.cases.collection import compile_ahead, shipped_suites

with without_callers_directory():
    compile_ahead(shipped_suites())
