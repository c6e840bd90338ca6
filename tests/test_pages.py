"""Huge pages: the memory says the same afterwards, and what the kernel counts changes where it can."""

import ctypes
import platform
import re
from pathlib import Path

import pytest

from recapture.pool.server import HUGE, use_huge_pages

SIZE = 16 * HUGE


def huge_pages(block: bytearray) -> int:
    """Bytes in huge pages of the mapping that holds a block of memory."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    here = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if found := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            here = int(found[1], 16) <= address < int(found[2], 16)
        elif here and line.startswith("AnonHugePages:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the block is nowhere")


def kernel() -> tuple[int, ...]:
    return tuple(map(int, platform.release().split(".")[:2]))


def test_memory_is_in_huge_pages_afterwards_and_as_it_was():
    block = bytearray(range(256)) * (SIZE // 256)
    collapsed = use_huge_pages()
    if not collapsed and (kernel() < (6, 1) or not Path("/sys/kernel/mm/transparent_hugepage").is_dir()):
        pytest.skip("this kernel cannot collapse pages")
    assert collapsed >= SIZE - HUGE
    assert huge_pages(block) >= SIZE - 2 * HUGE  # those at its ends may be in part another's
    assert block == bytearray(range(256)) * (SIZE // 256)


def test_where_there_is_no_proc_nothing_happens(monkeypatch):
    def refuse(self, *_, **__):
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert use_huge_pages() == 0
