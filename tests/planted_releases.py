"""Releases of torch that cost nothing: images whose ``torch`` is a file with a version, and a uv that installs them.

``PLANTED_GATE`` names a file: while it is there, uv waits in the middle of making an environment.
What a lock names is installed as a module with ``__version__``; the other packages are those of this Python. So a test
of a user's project can depend on the version of torch, Triton, numpy or any other package.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from planted_images import IMAGE, PYTHON, PlantedImages

from recapture.images import environments

RELEASES = (
    *("2.0.0", "2.0.1", "2.1.0", "2.1.1", "2.1.2", "2.2.0", "2.2.1", "2.2.2", "2.3.0", "2.3.1", "2.4.0", "2.4.1"),
    *("2.5.0", "2.5.1", "2.6.0", "2.7.0", "2.7.1", "2.8.0", "2.9.0", "2.9.1", "2.10.0", "2.11.0", "2.12.0", "2.12.1"),
    *("2.13.0", "2.14.0", "2.14.1", "2.15.0"),
)

UV = """#!{python} -IS
import os, pathlib, re, sys, time, zipfile
words = sys.argv[1:]
mode = os.environ.get("PLANTED_UV", "")
with open({log!r}, "a") as log:
    log.write(" ".join(words[:2]) + "\\n")
site = None
if "--python" in words and words[0] == "pip":
    sites = pathlib.Path(words[words.index("--python") + 1]).parent.parent.glob("lib/python*/site-packages")
    site = next(sites, None)
if words[:2] == ["python", "find"]:
    print({python!r})
elif words[0] == "venv":
    home = pathlib.Path(words[-1])
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "python").symlink_to({base!r})
    (home / "bin" / "pytest").write_text("#!/bin/sh\\nexec python -m pytest \\"$@\\"\\n")
    (home / "bin" / "pytest").chmod(0o755)
    (home / "lib" / "python{version}" / "site-packages").mkdir(parents=True)
    (home / "pyvenv.cfg").write_text("home = " + str(pathlib.Path({base!r}).parent))
elif words[:2] in (["pip", "sync"], ["pip", "install"]):
    lock = pathlib.Path(words[-1]).read_text() if words[1] == "sync" or words[-2] == "-r" else ""
    lock += "".join(word + "\\n" for word in words if "==" in word)
    gate = os.environ.get("PLANTED_GATE", "")
    while gate and os.path.exists(gate):
        open(gate + ".reached", "w").close()
        time.sleep(0.02)
    if mode and mode in lock:
        sys.exit("error: " + mode + " cannot be installed")
    if words[1] == "sync" or not list(site.glob("*.pth")):
        (site / "real.pth").write_text({real!r})
    for wheel in [word for word in words if word.endswith(".whl")]:
        zipfile.ZipFile(wheel).extractall(site)
    for name, version in re.findall(r"^([\\w-]+)==(\\S+)", lock, re.MULTILINE):
        info = site / f"{{name}}-{{version}}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {{name}}\\nVersion: {{version}}\\n")
        package = site / name.replace("-", "_")
        package.mkdir()
        (package / "__init__.py").write_text(f"__version__ = {{version!r}}\\n")
elif words[:2] == ["pip", "compile"]:
    pathlib.Path(words[words.index("--output-file") + 1]).write_text("")
else:
    sys.exit("unexpected: " + " ".join(words))
"""


class PlantedReleases(PlantedImages):
    """Images of all releases; Triton follows torch's minor release, numpy and scipy every third release."""

    def __init__(self, folder: Path, releases: tuple[str, ...] = RELEASES) -> None:
        super().__init__(folder)
        self.releases = releases
        tables = ['[tools]\ncutoff = 2026-11-01\nplatform = "x86_64-manylinux_2_28"\n']
        self.versions: dict[str, dict[str, str]] = {}
        for number, torch in enumerate(releases):
            minor = torch.rpartition(".")[0]
            pins = {"torch": torch, "torchvision": "0", "triton": minor.replace("2.", "3."), "setuptools": "0"}
            pins |= {
                "numpy": f"1.{number // 3}",
                "scipy": f"1.{number // 3}.5",
                "nvidia-cudnn-cu12": f"9.{number // 2}",
            }
            self.versions[torch] = pins
            table = IMAGE.format(name=f'"torch{torch}"', python=PYTHON, torch=torch)
            for name in ("triton", "numpy", "scipy"):
                table = table.replace(f'{name} = "0"', f'{name} = "{pins[name]}"')
            tables.append(table.replace('cudnn = "9"', f'cudnn = "{pins["nvidia-cudnn-cu12"]}"'))
            lock = "".join(f"{name}=={version}\n" for name, version in sorted(pins.items()))
            (self.docker / "locks" / f"torch{torch}.txt").write_text(lock)
        (self.docker / "images.toml").write_text("".join(tables))
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

    def use(self, monkeypatch) -> None:
        super().use(monkeypatch)
        monkeypatch.setattr(environments, "EXPECTED_BYTES", 1 << 20)
        monkeypatch.setattr(environments, "LAYER_BYTES", 1 << 20)
