"""A full disk: the message names the disk."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.hostile

FILL = """
import os, sys
from pathlib import Path
from recapture.base.files import append_line, write_atomically
folder = Path(sys.argv[1])
handle = os.open(folder / "rows.jsonl", os.O_RDWR | os.O_CREAT | os.O_APPEND)
append_line(handle, b"kept\\n")
for attempt in (lambda: write_atomically(folder / "report.md", bytes(1 << 20)), lambda: append_line(handle, bytes(1 << 20))):
    try:
        attempt()
    except OSError as error:
        print(error.strerror, error.filename)
print(sorted(os.listdir(folder)), (folder / "rows.jsonl").read_bytes())
"""


def test_no_space_left_names_the_place(tmp_path):
    script = 'mount -t tmpfs -o size=256k tmpfs "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", tmp_path, sys.executable, FILL],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr or "permission denied" in done.stderr:
        pytest.skip("this machine does not allow namespaces")
    assert done.stdout.splitlines() == [
        f"No space left on device {tmp_path}",
        f"No space left on device {tmp_path}/rows.jsonl",
        "['rows.jsonl'] b'kept\\n'",
    ], done.stderr
