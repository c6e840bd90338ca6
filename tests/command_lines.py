"""Running the command line in this process, and suites for it: what the tests of the command line share."""

from __future__ import annotations

from pathlib import Path

import pytest

from recapture.command.main import _run, main

SUITES = Path(__file__).parent / "resources" / "suites"
BROKEN = SUITES / "broken"
VERDICTS = SUITES / "planted" / "verdicts.py"


def recapture(*arguments: object) -> object:
    """Run a command line in this process, and return the exit status."""
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


@pytest.fixture
def refused(capfd):
    """Run the command line, check that there is no traceback, and return the last line of the error output."""

    def run(*arguments: object, status: int = 2) -> str:
        capfd.readouterr()
        exit_status = _run([str(argument) for argument in arguments])
        err = capfd.readouterr().err
        assert exit_status == status, err
        assert "Traceback" not in err
        assert " cells in " not in err
        line = err.strip().splitlines()[-1]
        assert line.startswith("recapture: ")
        return line.removeprefix("recapture: ")

    return run
