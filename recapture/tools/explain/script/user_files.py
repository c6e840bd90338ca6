"""What a script does with the files of the user that it carries; the script contains this module."""

from __future__ import annotations

import atexit
import base64
import io
import shutil
import sys
import tempfile
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path

ARCHIVE = "in base64:\n"
"""The end of the line above a script's archive; see `recapture.tools.explain.script.repro`."""

CARRIED = "user/"
"""The folder of the user's files in that archive."""


@lru_cache
def placed(script: str, beside: tuple[str, ...] = ()) -> str:
    """Write the user's files of a script to a folder, make them importable, and return it; it is removed at exit.

    `beside` are files that the script does not carry: they are linked from the script's own folder. Ends the program
    with status 2 and one line if one of them is not there.
    """
    folder = Path(tempfile.mkdtemp(prefix="recapture-script-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    packed = zlib.decompress(base64.b64decode(Path(script).read_text(encoding="utf-8").rpartition(ARCHIVE)[2]))
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(CARRIED)])
    root = folder / CARRIED
    root.mkdir(exist_ok=True)
    for name in beside:
        source, link = Path(script).absolute().parent / name, root / name
        if not source.exists():
            print(f"{name} is not beside this script: whether the fault shows is unknown", file=sys.stderr)
            sys.exit(2)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source)
    sys.path.append(str(root))
    return str(root)
