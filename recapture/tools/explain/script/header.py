"""The beginning of every printed script: its docstring, and how it ends if anything but the fault goes wrong."""

from __future__ import annotations

from collections.abc import Iterable

STATUS = "Exits with 1 if the fault shows, with 0 if it does not, and with 2 for any other error."
"""A sentence on the exit status of a script."""

HOOK = """\
import sys

if __name__ == "__main__":  # any other error ends this script with 2: Python's own 1 would say that the fault shows
    sys.excepthook = lambda kind, error, place: sys.exit(
        print(f"{__file__}, line {place.tb_lineno}: {kind.__name__}: {error}", file=sys.stderr) or 2
    )
"""
"""The first statements of a script, after its ``from __future__`` imports."""


def docstring(lines: Iterable[str]) -> str:
    """Return the docstring of a script, whatever characters its lines have."""
    return '"""' + "".join(f"{_in_docstring(line)}\n" for line in lines) + '"""\n\n'


def printable_line(text: str) -> str:
    """Return a line of text with unprintable characters, including lone surrogates, as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _in_docstring(line: str) -> str:
    return printable_line(line).replace("\\", "\\\\").replace('"""', "'''")
