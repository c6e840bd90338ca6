"""A checkout with a package of its own, two planted images and a small suite, for commands in other processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from conftest import REPOSITORY
from planted_images import PlantedImages

if TYPE_CHECKING:
    from pathlib import Path

SUITE = '''"""Small cases that wait while a file exists, so that a test can disturb what runs them."""

import os
import time

import torch

from recapture import case


def inputs(value):
    """Inputs, as soon as nobody holds the gate."""
    while os.path.exists(os.environ["PLANTED_GATE"]):
        time.sleep(0.05)
    return (torch.full((3,), float(value)),)


'''

CASE = '''@case(example=lambda: inputs({number}), held_out=[lambda: inputs(-{number})])
def case_{number}(x):
    """Adds, and takes a branch."""
    return x + {number} if x.sum() > 0 else x - {number}


'''

CASES = 6


class PlantedCheckout:
    """The images ``a`` and ``b`` in environments that take a moment to make, and the suite ``planted``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.gate = root / "gate"
        root.mkdir(parents=True)
        images = PlantedImages(root)
        skipped = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / "recapture", root / "recapture", ignore=skipped)
        shutil.copytree(REPOSITORY / "examples" / "fleet", root / "examples" / "fleet")
        environments = root / "recapture" / "images" / "environments.py"
        text = environments.read_text(encoding="utf-8")
        assert "EXPECTED_BYTES = 8 * GIB" in text
        environments.write_text(text.replace("EXPECTED_BYTES = 8 * GIB", "EXPECTED_BYTES = 1 << 20"), encoding="utf-8")
        (root / "suites").mkdir()
        cases = "".join(CASE.format(number=number) for number in range(1, CASES + 1))
        (root / "suites" / "planted.py").write_text(SUITE + cases, encoding="utf-8")
        (root / "results").mkdir()
        self.variables = {
            **os.environ,
            "PATH": os.pathsep.join([str(images.binaries), os.environ["PATH"]]),
            "RECAPTURE_CACHE": str(root / "cache"),
            "PLANTED_UV": "real torch",
            "PLANTED_GATE": str(self.gate),
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "10000",
        }
        self.variables.pop("PYTHONPATH", None)

    def start(self, *arguments: object, **variables: str) -> subprocess.Popen[str]:
        """Start ``recapture`` with these arguments, in the checkout's folder."""
        bootstrap = self.root / "recapture" / "pool" / "bootstrap.py"
        return subprocess.Popen(
            [sys.executable, str(bootstrap), "recapture", *map(str, arguments)],
            cwd=self.root,
            env=self.variables | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run ``recapture`` with these arguments to its end."""
        with self.start(*arguments, **variables) as process:
            out, err = process.communicate(timeout=500)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)
