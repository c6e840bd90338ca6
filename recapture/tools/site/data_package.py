"""Writes the data package: one document with its schema, laid out for pip and for npm."""

from __future__ import annotations

import gzip
from pathlib import Path

from recapture import data
from recapture.base.errors import UsageError
from recapture.base.escape import indented_json
from recapture.base.paths import module_file

TEMPLATES = module_file("tools", "site", "packages")
"""The files of both packages that are not data."""


def packed(document: bytes) -> bytes:
    """Return a document compressed, without a time, so that the same data give the same bytes."""
    return gzip.compress(document, 9, mtime=0)


def package_files(content: data.Data) -> dict[str, bytes]:
    """Return the files of both packages by their path: ``pip/…`` and ``npm/…``."""
    document = data.encode(content)
    schema = indented_json(data.json_schema()).encode()
    readme = (TEMPLATES / "README.md").read_bytes()
    files = {
        "pip/pyproject.toml": _filled("pyproject.toml", content.version),
        f"pip/{data.PACKAGE}/__init__.py": (TEMPLATES / "module.py.txt").read_bytes(),
        f"pip/{data.PACKAGE}/{data.FILE}": packed(document),
        f"pip/{data.PACKAGE}/{data.SCHEMA_FILE}": schema,
        "npm/package.json": _filled("package.json", content.version),
        "npm/data.json": document,
        f"npm/{data.SCHEMA_FILE}": schema,
    }
    license_text = (TEMPLATES / "LICENSE").read_bytes()
    for folder in ("pip", "npm"):
        files |= {f"{folder}/README.md": readme, f"{folder}/LICENSE": license_text}
    return files


def _filled(name: str, version: str) -> bytes:
    # The templates have a version, because tools that check the repository parse them.
    return (TEMPLATES / name).read_text(encoding="utf-8").replace('"0.0.0"', f'"{version}"').encode()


def write_packages(content: data.Data, folder: Path) -> int:
    """Write both packages below a folder; return the bytes of the compressed document.

    Raises UsageError if a file cannot be written.
    """
    files = package_files(content)
    write_files(folder, files)
    return len(files[f"pip/{data.PACKAGE}/{data.FILE}"])


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    """Write files by their path below a folder; raises UsageError, naming the file, for one that cannot be written."""
    for name, content in files.items():
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Not one by one to the disk: 800 files would take a minute, and the same command writes them again.
            path.write_bytes(content)
        except OSError as error:
            raise UsageError(f"cannot write {path}: {error.strerror}") from None
