"""``python -m recapture``: the command line without an installed script."""

import os
import sys

if not getattr(sys.flags, "safe_path", False) and sys.path[0] in ("", os.getcwd()):  # noqa: PTH109 - without pathlib
    # Python puts the current directory first. A file there may have the name of a library that this project imports.
    sys.path.append(sys.path.pop(0))

from recapture.command.main import main

main()
