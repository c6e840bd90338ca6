"""The tables of a checkout and of a user that the fuzzer damages: what is known, the images' pins, locks, answers."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import msgspec

from recapture.tools.check.across import ReleaseAnswer
from recapture.tools.check.answers import CheckReport, CheckRow
from tests.fuzz import toml_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = Path(__file__).resolve().parents[2]

IMAGES = ("torch2.6.0-cu124", "torch2.6.0-cu124-drifted")
"""Two images of one release, between which `bisect` compares the locks."""

MOST_ENTRIES = 6
"""Number of entries that a table keeps."""

LOCKED = ("click==", "numpy==", "scipy==", "setuptools==", "torch==", "triton==")
"""How the entries begin that a lock keeps."""

KEPT = {
    "claims": ("T10", "S3", "L1", "L2"),
    "images": (*IMAGES, "torch2.11.0-cu130"),
}
"""Entries that are kept of tables with names, because something else refers to them; of others, the first."""


def build(root: Path) -> None:
    """Write the tables below a folder, as in a checkout, and what `check --across` and docker keep."""
    (root / "suites").mkdir()
    shutil.copyfile(REPOSITORY / "suites" / "types.py", root / "suites" / "types.py")
    for path in sorted((REPOSITORY / "suites").glob("*.toml")):
        (root / "suites" / path.name).write_text(toml_text.to_toml(_first(tomllib.loads(path.read_text()))))
    locks = root / "docker" / "locks"
    locks.mkdir(parents=True)
    pins = _first(tomllib.loads((REPOSITORY / "docker" / "images.toml").read_text()))
    (root / "docker" / "images.toml").write_text(toml_text.to_toml(pins))
    for name in IMAGES:
        text = (REPOSITORY / "docker" / "locks" / f"{name}.txt").read_text()
        head, *entries = re.split(r"(?m)^(?=[a-z0-9])", text)
        locked = [entry for entry in entries if entry.startswith(LOCKED)]
        few = [
            "".join(entry.splitlines(keepends=True)[:2]).rstrip(" \\\n") + "\n" for entry in locked
        ]  # with one hash each
        (locks / f"{name}.txt").write_text(head + "".join(few))
    (root / "requirements.txt").write_text("# of a user\n-r more.txt\nnumpy>=1.20 ; python_version > '3.8'\n")
    (root / "more.txt").write_text("attrs>=20 --hash=sha256:00\nhttps://example.invalid/x.whl\n-e .\n")
    (root / "resolved.txt").write_text("attrs==23.1 \\\n    --hash=sha256:00\nhttps://example.invalid/x.whl\n")
    _answers(root / "cache" / "checks")
    context = root / "docker-config" / "contexts" / "meta" / "abc"
    context.mkdir(parents=True)
    stored = {"Name": "there", "Metadata": {}, "Endpoints": {"docker": {"Host": "tcp://192.0.2.1:1"}}}
    (context / "meta.json").write_text(json.dumps(stored))


def _first(document: dict) -> dict:
    """Return a document with few entries in each table of the top level."""
    few: dict = {}
    for name, entries in document.items():
        wanted = [key for key in KEPT.get(name, ()) if key in entries]
        if isinstance(entries, list):
            few[name] = entries[:MOST_ENTRIES]
        elif isinstance(entries, dict) and name in ("claims", "images", "issues"):
            few[name] = {key: entries[key] for key in (wanted or list(entries)[:MOST_ENTRIES])}
        else:
            few[name] = entries
    return few


def _answers(folder: Path) -> None:
    folder.mkdir(parents=True)
    rows = (
        CheckRow(compiler="jit.trace", verdict="specialized", input="batch=1", reason="value", wrong_on=("batch=1",)),
        CheckRow(compiler="compile", verdict="pass", seconds=2.5, speedup=(1.5, 1.4, 1.6), finding="faster"),
        CheckRow(compiler="export", verdict="error", phase="call", input="batch=3", reason="ValueError: no"),
    )
    fields = {
        "inputs": ("batch=1",),
        "refused": (("batch=0", "RuntimeError: no"), ("None", "TypeError: no")),
        "must_raise": ("None",),
        "untried": ("layout",),
    }
    for torch in ("2.6.0", "2.11.0"):
        report = CheckReport(target="m.py:Net", torch=torch, device="cpu", **fields, rows=rows)
        answer = ReleaseAnswer(release=torch, image=f"torch{torch}", report=report, seconds=9.5)
        (folder / f"torch{torch}.json").write_bytes(msgspec.json.encode(("key", answer)))
    (folder / "printed.json").write_bytes(msgspec.json.encode(report))
