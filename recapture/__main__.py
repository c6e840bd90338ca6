"""``python -m recapture``: the command line without an installed script."""

from recapture.cli.main import main

main()
