"""``python -m recapture``: the command line without an installed script."""

from recapture.cli import main

main()
