"""Huge pages: the memory says the same afterwards, and what the kernel counts changes where it can."""

import platform
import re
from pathlib import Path

import pytest

from recapture.pages import HUGE, collapse

SIZE = 16 * HUGE


def huge_pages() -> int:
    """Bytes of this process that are in huge pages now, beside those of files."""
    found = re.search(r"AnonHugePages:\s+(\d+) kB", Path("/proc/self/smaps_rollup").read_text())
    return int(found[1]) * 1024 if found else 0


def kernel() -> tuple[int, ...]:
    return tuple(map(int, platform.release().split(".")[:2]))


def test_memory_is_in_huge_pages_afterwards_and_as_it_was():
    block = bytearray(range(256)) * (SIZE // 256)
    before = huge_pages()
    collapsed = collapse()
    if not collapsed and (kernel() < (6, 1) or not Path("/sys/kernel/mm/transparent_hugepage").is_dir()):
        pytest.skip("this kernel cannot collapse pages")
    assert collapsed >= SIZE - HUGE
    assert huge_pages() >= min(before + SIZE // 2, SIZE - HUGE)
    assert block == bytearray(range(256)) * (SIZE // 256)


def test_where_there_is_no_proc_nothing_happens(monkeypatch):
    def refuse(self, *_, **__):
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert collapse() == 0
