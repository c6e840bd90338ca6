"""What a command imports: the list of commands imports none of them, and the help of one imports it alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recapture.base.by_name import module_of
from recapture.command.command_table import COMMANDS, ROLES

REPOSITORY = Path(__file__).resolve().parents[1]

PROGRAM = """
import json, runpy, sys
sys.argv = ["recapture", *sys.argv[1:]]
try:
    runpy.run_module("recapture", run_name="__main__")
finally:
    print("\\n" + json.dumps(sorted(sys.modules)), file=sys.stderr)
"""

pytestmark = pytest.mark.quick


def imported(*arguments):
    """The names of all modules that a command line imports, in a Python of its own."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1]))


def of_this_package(modules):
    return {name for name in modules if name.partition(".")[0] == "recapture"}


def test_the_list_of_commands_imports_no_command():
    modules = imported("--help")
    assert (
        len([name for name in of_this_package(modules) if not name.startswith("recapture.tools.")]) < 15
    )  # a tool is its folder
    assert not modules & {module_of(command.place) for command in COMMANDS.values()}


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_and_version_need_no_library_but_click(arguments):
    modules = imported(*arguments)
    assert "click" in modules
    assert not modules & {"recapture.torch_api", "msgspec", "rich", "packaging", "torch", "importlib.metadata"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_imports_that_command_alone(name):
    modules = imported(name, "--help")
    places = {command_name: module_of(command.place) for command_name, command in COMMANDS.items()}
    assert places[name] in modules
    shared = {command_name for command_name, place in places.items() if place in modules} - {name}
    assert all(
        places[name].startswith(f"recapture.tools.{places[command_name].split('.')[2]}.") for command_name in shared
    )
    assert "torch" not in modules
    # A tool may add options to a command of the core; whatever else a tool does is not imported for a help.
    added = {
        module_of(place).split(".")[2]
        for role, places in ROLES.items()
        if role == f"additions to {name}"
        for place in places
    }
    own_tool = {places[name].split(".")[2]} if places[name].startswith("recapture.tools.") else set()
    tools = {
        module.split(".")[2] for module in modules if module.startswith("recapture.tools.") and module.count(".") > 2
    }
    assert tools == added | own_tool


def test_shipped_suites_are_listed_without_torch():
    assert "torch" not in imported("list", "--json")


@pytest.mark.serial
@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [(("--help",), 2.0), (("list",), 6.0), (("report", "results/torch2.11.0-cu130/cpu", "--output", "-"), 12.0)],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_commands_that_only_read_are_fast(arguments, seconds):
    """Six times what they take on an idle machine: a command that imports torch or starts a server takes longer."""
    began = time.monotonic()
    imported(*arguments)
    assert time.monotonic() - began < seconds


def test_a_report_of_conformance_alone_imports_no_statistics(tmp_path):
    folder = tmp_path / "torch2.9.1-cu128" / "cpu"
    shutil.copytree(REPOSITORY / "results" / "torch2.9.1-cu128" / "cpu", folder)
    assert not {name.partition(".")[0] for name in imported("report", str(folder))} & {"scipy", "numpy", "torch"}
