"""Images of the tests' own, and a uv that installs them in a moment, or fails as the test wants."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import torch
from packaging.version import Version

from recapture.images.interpreter import Interpreter
from recapture.machine import pins

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
TORCH = Version(torch.__version__).public

UV = """#!{python} -IS
import os, pathlib, re, signal, sys, time
words = sys.argv[1:]
mode = os.environ.get("PLANTED_UV", "")
with open({log!r}, "a") as log:
    log.write(" ".join(words[:2]) + "\\n")
if words[:2] == ["python", "find"]:
    print({python!r})
elif words[0] == "venv":
    home = pathlib.Path(words[-1])
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to({base!r})
    (home / "lib" / "python{version}" / "site-packages").mkdir(parents=True)
    (home / "pyvenv.cfg").write_text("home = " + str(pathlib.Path({base!r}).parent))
elif words[:2] == ["pip", "sync"]:
    site = next(pathlib.Path(words[words.index("--python") + 1]).parent.parent.glob("lib/python*/site-packages"))
    (site / "real.pth").write_text({real!r})
    if mode == "die":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1)  # a real uv goes on installing when its parent is gone
        (site / "late").mkdir()
        sys.exit(1)
    if mode == "slow":
        time.sleep(2)
    if mode.startswith("say "):
        sys.exit(mode[4:])
    for name, version in re.findall(r"^(\\S+)==(\\S+)", pathlib.Path(words[-1]).read_text(), re.MULTILINE):
        version = "0" if mode == "old" and name == "marker" else version
        info = site / f"{{name}}-{{version}}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {{name}}\\nVersion: {{version}}\\n")
    if mode != "real torch":
        (site / "torch").mkdir()
        (site / "torch" / "__init__.py").write_text("raise ImportError('libtorch is broken')" if mode == "broken" else "")
elif words[:2] == ["pip", "compile"]:
    if os.environ.get("PLANTED_UV_COMPILE"):
        sys.exit(os.environ["PLANTED_UV_COMPILE"])
    lines = [line for word in words if word.endswith("needs.txt") for line in open(word).read().splitlines()]
    pinned = dict(line.split("==") for line in open(words[words.index("--constraints") + 1]).read().splitlines())
    requirements = [line if "==" in line else line + "==" + pinned[line] for line in lines]
    pathlib.Path(words[words.index("--output-file") + 1]).write_text("\\n".join(requirements) + "\\n")
elif words[:2] == ["pip", "install"]:
    site = next(pathlib.Path(words[words.index("--python") + 1]).parent.parent.glob("lib/python*/site-packages"))
    for name, version in re.findall(r"^(\\S+)==(\\S+)", open(words[-1]).read(), re.MULTILINE):
        (site / f"{{name}}-{{version}}.dist-info").mkdir()
else:
    sys.exit("unexpected: " + " ".join(words))
"""

IMAGE = """
[images.{name}]
python = "{python}"
torch = "{torch}"
torchvision = "0"
triton = "0"
numpy = "0"
scipy = "0"
setuptools = "0"
cuda = "13.0"
cudnn = "9"
base = "python@sha256:0"
capabilities = ["8.0"]
driver = 580
cutoff = 2026-11-01
"""


class PlantedImages:
    """A docker folder with the images a, b and a-drifted, which differ in one package, and a planted uv on PATH."""

    def __init__(self, folder: Path) -> None:
        self.docker = folder / "docker"
        self.root = folder / "environments"
        self.log = folder / "uv.log"
        self.log.touch()
        (self.docker / "locks").mkdir(parents=True)
        tables = ['[tools]\ncutoff = 2026-11-01\nplatform = "x86_64-manylinux_2_28"\n']
        for number, name in enumerate(("a", "b", "a-drifted"), 1):
            tables.append(IMAGE.format(name=name, python=PYTHON, torch=TORCH))
            (self.docker / "locks" / f"{name}.txt").write_text(f"torch=={TORCH}\nmarker=={number}\n")
        (self.docker / "images.toml").write_text("".join(tables))
        self.binaries = folder / "bin"
        self.binaries.mkdir()
        uv = self.binaries / "uv"
        uv.write_text(
            UV.format(
                python=sys.executable,
                base=str(Path(sys.executable).resolve()),
                version=PYTHON,
                log=str(self.log),
                real=sysconfig.get_path("purelib"),
            )
        )
        uv.chmod(0o755)

    def use(self, monkeypatch) -> None:
        """Make this process use these images and this uv."""
        monkeypatch.setattr(pins, "docker_directory", lambda: self.docker)
        monkeypatch.setenv("PATH", os.pathsep.join([str(self.binaries), os.environ["PATH"]]))
        monkeypatch.setenv("RECAPTURE_CACHE", str(self.root.parent))

    def match_this_python(self) -> None:
        """Make the image a one whose packages this Python has."""
        (self.docker / "locks" / "a.txt").write_text(f"click=={importlib.metadata.version('click')}\n")

    def installed(self) -> int:
        """The number of times that uv installed a lock."""
        return self.log.read_text().splitlines().count("pip sync")

    def start(self, code: str, **environment: str) -> subprocess.Popen[str]:
        """Run code in a process of its own, which uses these images; it finds `environments` and `image`."""
        begin = (
            "from pathlib import Path\nfrom recapture.machine import pins\n"
            f"pins.docker_directory = lambda: Path({str(self.docker)!r})\n"
            "from recapture.images.environments import Environments\n"
            f"environments = Environments(root=Path({str(self.root)!r}))\nimage = pins.find_image('a')\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", begin + code],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def plant_runs(monkeypatch, run):
    """Let `run(interpreter, words, stderr)`, which returns an exit status, take the place of ``recapture WORDS``."""

    class Ended:
        def __init__(self, status):
            self.status = status

        def wait(self):
            return self.status

    @contextlib.contextmanager
    def start(interpreter, *words, stdout, stderr):
        assert stdout == subprocess.DEVNULL
        yield Ended(run(interpreter, words, stderr))

    monkeypatch.setattr(Interpreter, "start", start)
