"""Record the benchmark that the tests of reports render: ``python tests/resources/speedups/record.py``.

It measures the planted workloads for real (about a minute) and replaces ``measured.json`` beside this file. Run it again
where the format of the file changes.
"""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1])]

import planted_bench  # noqa: E402 - found through the path set above

from recapture.tools.speed.speedups import write_speedups  # noqa: E402

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_speedups(HERE / "measured.json", planted_bench.measure(Path(folder)))
