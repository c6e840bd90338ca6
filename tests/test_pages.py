"""Huge pages: the memory says the same afterwards, and what the kernel counts changes where it can."""

import ctypes
import errno
import platform
import re
from pathlib import Path

import pytest

from recapture.pool.server import HUGE, MADV_COLLAPSE, use_huge_pages

SIZE = 16 * HUGE


def huge_pages(block: bytearray) -> int:
    """Bytes in huge pages of the mapping that holds a block of memory."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    in_block = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            in_block = int(match[1], 16) <= address < int(match[2], 16)
        elif in_block and line.startswith("AnonHugePages:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the block is nowhere")


def kernel() -> tuple[int, ...]:
    return tuple(map(int, platform.release().split(".")[:2]))


def why_not(block: bytearray) -> str:
    """What the kernel says when it is asked for huge pages in the middle of a block; nothing if it makes them."""
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    begin = -(-address // HUGE) * HUGE
    libc = ctypes.CDLL(None, use_errno=True)
    status = libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(SIZE - 2 * HUGE), MADV_COLLAPSE)
    return "" if status == 0 else errno.errorcode[ctypes.get_errno()]


def test_memory_is_in_huge_pages_afterwards_and_as_it_was():
    block = bytearray(range(256)) * (SIZE // 256)
    collapsed = use_huge_pages()
    if not collapsed and (kernel() < (6, 1) or not Path("/sys/kernel/mm/transparent_hugepage").is_dir()):
        pytest.skip("this kernel cannot collapse pages")
    if not collapsed and (refusal := why_not(block)) in ("ENOMEM", "EAGAIN"):
        pytest.skip(f"the machine's free memory is in pieces that are too small: {refusal}")
    assert collapsed >= SIZE - HUGE
    assert huge_pages(block) >= SIZE - 2 * HUGE  # those at its ends may be in part another's
    assert block == bytearray(range(256)) * (SIZE // 256)


def test_where_there_is_no_proc_nothing_happens(monkeypatch):
    def refuse(self, *_, **__):
        raise FileNotFoundError(self)

    monkeypatch.setattr(Path, "read_text", refuse)
    assert use_huge_pages() == 0
