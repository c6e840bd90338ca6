"""A precompiled header for the own part of AOTInductor's wrappers, without the templates of `<regex>`.

torch's header has one function that uses regular expressions. Only the interface calls it, but every file that includes
the header instantiates the templates behind it, which takes a third of the time of a program's own part. Here the
header is compiled where `<regex>` declares the names that this function needs, and defines nothing.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["STAND_IN", "lean_command", "uses_regex", "uses_regex_elsewhere"]

INCLUDED = (
    "algorithm",
    "bitset",
    "functional",
    "iterator",
    "locale",
    "map",
    "memory",
    "sstream",
    "stack",
    "string",
    "vector",
)
"""What the real `<regex>` includes."""

STAND_IN = (
    "#pragma once\n"
    + "".join(f"#include <{name}>\n" for name in INCLUDED)
    + """
namespace std {
struct regex { regex(const char*); };
struct submatch_of_regex { string str() const; size_t length() const; bool matched; };
struct smatch { submatch_of_regex operator[](size_t) const; };
bool regex_match(const string&, smatch&, const regex&);
}
"""
)

CALLER = re.compile(r"^inline void parse_device_str\(.*?^}\n", re.DOTALL | re.MULTILINE)


def uses_regex_elsewhere(headers: Sequence[str]) -> bool:
    """Whether headers use regular expressions outside the one function that may."""
    return any(re.search(r"\b(regex_|std::\w*(regex|match))", CALLER.sub("", text)) for text in headers)


def uses_regex(compiled: bytes) -> bool:
    """Whether compiled code refers to what the stand-in declares."""
    return any(name in compiled for name in (b"St5regex", b"St6smatch", b"submatch_of_regex", b"regex_match"))


def lean_command(general: list[str], folder: Path, run: Callable[[list[str], str], None]) -> list[str] | None:
    """Return a command that compiles SOURCE to TARGET, as `general` does, with the lean header; None if it cannot.

    The first call compiles the header, below `folder`. Raises what `run` raises if it does not compile.
    """
    runtime = Path(importlib.import_module("torch").__path__[0], "include/torch/csrc/inductor/aoti_runtime")
    headers = [path.read_text() for path in sorted(runtime.glob("*.h"))]
    if "-include" not in general or uses_regex_elsewhere(headers):
        return None
    place = general.index("-include")
    text = Path(general[place + 1]).read_text()
    flags = [word for word in general if word not in ("SOURCE", "TARGET", "-c", "-o", "-include", general[place + 1])]
    key = hashlib.sha256("\0".join((text, *flags, *headers)).encode()).hexdigest()
    lean = folder / key
    header = lean / "lean.h"
    if not Path(f"{header}.gch").exists():
        lean.mkdir(mode=0o700, exist_ok=True)
        (lean / "regex").write_text(STAND_IN)
        header.write_text(text)
        made = lean / f"made-{os.getpid()}"  # another process may be making it too
        run([flags[0], "-I", str(lean), *flags[1:], "-x", "c++-header", str(header), "-o", str(made)], str(lean))
        made.replace(f"{header}.gch")
    command = [str(header) if word == general[place + 1] else word for word in general]
    return [command[0], "-I", str(lean), *command[1:]]
