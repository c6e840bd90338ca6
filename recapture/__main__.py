"""``python -m recapture``: the command line without an installed script."""

from recapture.command.main import main

main()
