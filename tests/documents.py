"""The commands and programs in the project's documents: finding them, running them, comparing what they print.

A fenced block of ``sh`` or ``python`` is run, in the order of its document: in a temporary copy of what the commands read,
with this Python, and for the documents that a newcomer follows also in a fresh clone, with the environment that the
README makes and nothing else (`make_clone`).
Each command has to end with exit status 0, or with N where ``# exit status N`` ends its line. A line of Python that ends
with ``# raises an AssertionError`` has to raise it.
Comments directly above a block say what is special about it:

- ``<!-- not run: REASON -->``: it is not run;
- ``<!-- only in a clone: REASON -->``: it is run in a fresh clone alone;
- ``<!-- file: NAME -->``: it is written to a file, which a later command of the document names;
- ``<!-- output -->``: a block of ``text`` that the command above it has to print.

In an expected output, a line ``…`` matches any lines, and ``…`` within a line any characters. Runs of blanks count as one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

LANGUAGES = frozenset({"sh", "python", "text", "yaml", "toml", "json"})
"""Permitted labels of a block; blocks with other labels, or without one, would silently not be run."""

COPIED = ("results", "suites", "docker", "examples")
"""Folders that commands in the documents read."""

SECONDS = 300
"""Seconds that one block may take."""

SET_UP_SECONDS = 1800
"""Seconds that the set-up of a clone may take: it downloads 3 GB where uv's cache is empty."""

_COMMENT = re.compile(r"<!--\s*(not run|only in a clone|file|output)\s*(?::\s*(.*?))?\s*-->")

_STATUS = re.compile(r"^(.*?)\s+# exit status (\d+)$", re.MULTILINE)
_RAISES = re.compile(r"^(\S.*?)\s+# raises an? (\w+)\b.*$", re.MULTILINE)

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""What a newcomer's shell begins with as PATH."""

OF_DEVELOPERS = re.compile(r"PYTHON|PYTEST_|COV_|NOX|VIRTUAL_ENV|OMP_NUM_THREADS|TORCH|TRITON|RECAPTURE_|GITHUB_")
"""How variables of the shell begin that a newcomer does not have."""


class DocumentError(Exception):
    """A document does not follow the rules at the top of this file, or one of its blocks fails."""


@dataclass(frozen=True)
class Block:
    """One fenced block: where it begins, its label, its text, and the comments above it."""

    line: int
    language: str
    text: str
    marks: dict[str, str]


def find_documents(root: Path = ROOT) -> list[Path]:
    """Return the documents whose blocks are run."""
    top = [path for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md") if (path := root / name).is_file()]
    site = [path for path in sorted((root / "docs").rglob("*.md")) if "generated" not in path.parts]
    return [*top, *site, *sorted((root / "examples").rglob("README.md"))]


def section(text: str, title: str) -> str:
    """Return what a document says below a heading of the second level, up to the next one."""
    return text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


def find_blocks(text: str) -> list[Block]:
    """Return the fenced blocks of a document in Markdown."""
    lines = text.splitlines()
    blocks: list[Block] = []
    number = 0
    while number < len(lines):
        opened = re.match(r"( *)(```+|~~~+)(.*)$", lines[number])
        if opened is None:
            number += 1
            continue
        indent, fence, label = opened[1], opened[2], opened[3].strip()
        end = next((at for at in range(number + 1, len(lines)) if lines[at].strip() == fence), None)
        if end is None:
            raise DocumentError(f"line {number + 1}: the block has no end")
        body = "".join(line.removeprefix(indent) + "\n" for line in lines[number + 1 : end])
        blocks.append(Block(number + 1, label, body, _marks_above(lines, number)))
        number = end + 1
    return blocks


def _marks_above(lines: list[str], number: int) -> dict[str, str]:
    marks = {}
    for line in reversed(lines[:number]):
        mark = _COMMENT.fullmatch(line.strip())
        if mark is None:
            break
        marks[mark[1]] = mark[2] or ""
    return marks


def check_blocks(blocks: list[Block]) -> None:
    """Raise DocumentError for a block that is neither run nor marked with a reason."""
    for number, block in enumerate(blocks):
        if block.language.startswith("{"):  # a directive of the site
            continue
        if block.language not in LANGUAGES:
            raise DocumentError(f"line {block.line}: label the block as one of {', '.join(sorted(LANGUAGES))}")
        if "" in (block.marks.get("not run"), block.marks.get("only in a clone")):
            raise DocumentError(f"line {block.line}: not run, and no reason is given")
        if "file" in block.marks and not any(
            block.marks["file"] in later.text for later in blocks[number + 1 :] if later.language == "sh"
        ):
            raise DocumentError(f"line {block.line}: no later command names {block.marks['file']}")
        if "output" in block.marks and (number == 0 or blocks[number - 1].language not in ("sh", "python")):
            raise DocumentError(f"line {block.line}: an output without a command above it")


def matches(expected: str, printed: str) -> bool:
    """Whether a command printed what the document shows."""
    pattern = ""
    for line in map(_single_blanks, expected.splitlines()):
        if line == "…":
            pattern += r"(?:[^\n]*\n)*?"
        else:
            pattern += r"[^\n]*".join(map(re.escape, line.split("…"))) + r"\n"
    lines = [_single_blanks(line) for line in printed.rstrip("\n").splitlines()]
    # Another Python than the image's runs the same cells, and files them under another name.
    return re.fullmatch(pattern, "\n".join([*lines, ""]).replace("bare-torch", "torch")) is not None


def _single_blanks(line: str) -> str:
    return re.sub(r" +", " ", line.rstrip())


def make_copy(folder: Path) -> None:
    """Fill a folder with what commands read, and with the commands themselves, run by this Python."""
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tmp").mkdir()
    (folder / "build").mkdir()
    for path, command in {
        "bin/recapture": f'exec "{sys.executable}" -m recapture "$@"',
        "bin/python": f'exec "{sys.executable}" "$@"',
        # What `nox -s cpu-suite` runs once the packages are installed; other sessions are not for here.
        ".venv/bin/nox": '[ "$1 $2" = "-s cpu-suite" ] && shift 2 || exit 99\n[ "${1-}" != -- ] || shift\n'
        f'exec "{sys.executable}" -m recapture run --device cpu "$@"',
    }.items():
        script = folder / path
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f"#!/bin/sh\n{command}\n")
        script.chmod(0o755)


def make_clone(folder: Path) -> dict[str, str]:
    """Clone the repository to ``folder/recapture`` and set it up as the README says; return the shell's variables then.

    What is committed is cloned. Packages come from uv's cache where it has them; all else is in `folder`.
    """
    clone = folder / "recapture"
    subprocess.run(["git", "-c", "safe.directory=*", "clone", "--quiet", ROOT, clone], check=True)
    (folder / "tmp").mkdir()
    newcomer = {name: value for name, value in os.environ.items() if not OF_DEVELOPERS.match(name)}
    newcomer |= {
        "PATH": SYSTEM_PATH,
        "TMPDIR": str(folder / "tmp"),
        "RECAPTURE_CACHE": str(folder / "cache"),
    }
    (block,) = find_blocks("\n" + section((clone / "README.md").read_text(encoding="utf-8"), "Set up"))
    variables = folder / "variables"
    _run(Block(block.line, "sh", f"{block.text}env --null > {variables}\n", {}), clone, newcomer, SET_UP_SECONDS)
    return dict(line.split("=", 1) for line in variables.read_text().split("\0") if line)


def run_document(text: str, folder: Path, environment: dict[str, str] | None = None) -> int:
    """Run the blocks of a document that are to be run, and return their number.

    The folder is one that `make_copy` made, or with the environment that `make_clone` returned, its clone.
    """
    blocks = find_blocks(text)
    check_blocks(blocks)
    blocks_run = 0
    printed = ""
    for block in blocks:
        if "output" in block.marks:
            if not matches(block.text, printed):
                raise DocumentError(f"line {block.line}: the document shows\n{block.text}\nand printed was\n{printed}")
        elif block.language in ("sh", "python") and "not run" not in block.marks:
            if environment is None and "only in a clone" in block.marks:
                continue
            if "file" in block.marks:
                (folder / block.marks["file"]).write_text(block.text)
                continue
            printed = _run(block, folder, environment or make_environment(folder), SECONDS)
            blocks_run += 1
    return blocks_run


def _run(block: Block, folder: Path, environment: dict[str, str], seconds: float) -> str:
    """Run one block in a folder; return its standard output."""
    if block.language == "sh":
        checked = _STATUS.sub(
            r'status=0; \1 || status=$?; [ $status -eq \2 ] || { echo "status $status"; exit 1; }', block.text
        )
        command = ["bash", "-euo", "pipefail", "-c", checked]
    else:
        command = ["python", "-c", _RAISES.sub(_that_it_raises, block.text)]
    ended = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )
    if ended.returncode != 0:
        raise DocumentError(f"line {block.line}: failed:\n{block.text}\n{ended.stdout}{ended.stderr}")
    return ended.stdout


def _that_it_raises(line: re.Match[str]) -> str:
    """Return a program that ends with an error unless a line of a document raises what the document says."""
    return (
        f"try:\n    {line[1]}\nexcept {line[2]}:\n    pass\n"
        f"else:\n    raise SystemExit('the document says that this raises {line[2]}: ' + {line[1]!r})"
    )


def make_environment(folder: Path) -> dict[str, str]:
    """Return the environment of commands in a folder made by `make_copy`."""
    return {
        **{name: value for name, value in os.environ.items() if name not in ("COLUMNS", "GITHUB_STEP_SUMMARY")},
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TMPDIR": str(folder / "tmp"),
    }
