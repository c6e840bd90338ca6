"""The script of a check runs on a machine that has none of the user's files, with torch alone, and says the same."""

import importlib
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from test_repro_alone import ALONE, FORKED, requirements_of_torch

import recapture
from recapture.command.main import _run

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

FILES = {
    "model.py": "import torch\nfrom helper import scale\n\ndef sign(x):\n    return scale(x) if x.sum() > 0 else -x\n",
    "helper.py": "def scale(x):\n    return 2 * x\n",
    "late.py": "def sign(x):\n    from helper import scale\n\n    return scale(x) if x.sum() > 0 else -x\n",
    "named.py": "import torch\n\ndef inputs():\n    return {'x': torch.ones(3), 'flip': torch.ones(1)}\n"
    "\ndef turned(x, flip):\n    return x if x.sum() > 0 else -flip * x\n",
    "net/__init__.py": "from .whole import Net\n",
    "net/parts.py": "import torch\n\ndef scale(x):\n    return 3 * x\n",
    "net/whole.py": "import torch\nfrom .parts import scale\n\nclass Net(torch.nn.Module):\n    def forward(self, x):\n"
    "        return scale(x) if x.sum() > 0 else -x\n",
    "loaded.py": "import torch\n\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    "        self.weight = torch.load('data/weights.pt')\n\n    def forward(self, x):\n"
    "        return self.weight * x if x.sum() > 0 else -x\n",
    "installed.py": "from scipy.special import gamma\n\ndef sign(x):\n    return x * float(gamma(3)) if x.sum() > 0 else -x\n",
    "suite.py": "import torch\nfrom helper import scale\nfrom recapture import case\n\n"
    "@case(example=lambda: (torch.ones(3),), held_out=[lambda: (-torch.ones(3),)])\n"
    "def sign(x):\n    return scale(x) if x.sum() > 0 else -x\n",
    "types.py": "def sign(x):\n    return x if x.sum() > 0 else -x\n",
}

PROGRAM = "def sign(x):\n    return x if x.sum() > 0 else -x\n"
"""What a program defines itself."""


@pytest.fixture
def user_folder(tmp_path, monkeypatch, served):
    """A folder with the user's files, in which they work; it is gone when a script is run."""
    folder = tmp_path / "here"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "data").mkdir()
    torch.save(torch.tensor(5.0), folder / "data" / "weights.pt")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] in ("model", "helper", "net", "named")]:
        del sys.modules[name]


def run_elsewhere(folder, scripts, beside=(), more=()):
    """Run scripts in another folder, where torch alone is installed; `folder` is unreachable under its name.

    Yields the status, the output and the errors of each script. `beside` are files put there, and `more` modules.
    """
    elsewhere, gone = folder.with_name("there"), folder.with_name("gone")
    elsewhere.mkdir()
    for number, script in enumerate(scripts):
        (elsewhere / f"script{number}.py").write_text(script, encoding="utf-8")
    for name, path in beside:
        (elsewhere / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, elsewhere / name)
    for name, text in more:
        (elsewhere / name).write_text(text)
    folder.rename(gone)
    try:
        program = (
            ALONE.format(allowed=requirements_of_torch())
            + (f"sys.path.insert(0, {str(elsewhere)!r})\n" if more else "")
            + FORKED
        )
        names = [str(elsewhere / f"script{number}.py") for number in range(len(scripts))]
        command = [sys.executable, "-I", "-W", "ignore", "-c", program, *names]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere, timeout=300)
    finally:
        gone.rename(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, status in zip(names, done.stdout.split(), strict=True):
        yield int(status), Path(f"{name}.out").read_text(), Path(f"{name}.err").read_text()
    shutil.rmtree(elsewhere)


def in_program(text):
    """A function of the program itself, which is in no module that can be imported."""
    space = {"__name__": "__main__"}
    path = Path("program.py").resolve()
    path.write_text(text)
    exec(compile(text, str(path), "exec"), space)
    return space["sign"]


def object_of(name, *, instance=False):
    """A function that imports an object, and with `instance` makes one of the class."""
    module, _, attribute = name.rpartition(".")

    def load():
        value = getattr(importlib.import_module(module), attribute)
        return value() if instance else value

    return load


def closing_over():
    model = importlib.import_module("model")
    return lambda x: model.sign(x) + 0


ONES = torch.ones(3)

TARGETS = {
    "a file": (lambda: "model.py:sign", "3"),
    "a function that imports when it is called": (lambda: "late.py:sign", "3"),
    "a file in a package": (lambda: "net/whole.py:Net", "3"),
    "a module": (lambda: "net.whole:Net", "3"),
    "a package": (lambda: "net:Net", "3"),
    "a file named like a module of Python": (lambda: "types.py:sign", "3"),
    "a function of a file": (object_of("model.sign"), ONES),
    "a class of a package": (object_of("net.whole.Net"), ONES),
    "an object of a package": (object_of("net.whole.Net", instance=True), (ONES,)),
    "a lambda": (closing_over, ONES),
    "inputs by name": (object_of("named.turned"), {"flip": torch.ones(1), "x": ONES}),
    "a function that makes inputs": (object_of("named.turned"), lambda: (ONES, torch.ones(1))),
    "a large input": (object_of("model.sign"), torch.rand(400_000)),
}


def script_of(target, example, compiler="jit.trace", **options):
    """The script and the verdict of a compiler."""
    result = recapture.check(target, example, compilers=[compiler], **{"most_inputs": 6, **options})
    return result.repro(compiler), result[compiler].verdict


def test_scripts_say_the_same_where_nothing_of_the_user_is(user_folder):
    written_scripts = [script_of(make(), example) for make, example in TARGETS.values()]
    written_scripts.append(script_of(in_program(PROGRAM), ONES, "jit.script", held_out={"below": -ONES}))
    ended = run_elsewhere(user_folder, [script for script, _ in written_scripts])
    for form, (script, verdict), (status, output, errors) in zip(
        [*TARGETS, "a program"], written_scripts, ended, strict=True
    ):
        assert f"== verdict: {verdict}" in output, (form, output[-500:], errors[-2000:])
        assert status == (0 if verdict == "pass" else 1), form
        # The code of a program keeps the name that it was compiled with.
        assert form == "a program" or str(user_folder) not in script, form
        assert "recapture" not in script.partition("Needs ")[2].partition("\n")[0], form


def test_what_a_script_cannot_carry_is_named(user_folder):
    with pytest.warns(
        UserWarning, match=r"^the script reads files that it does not carry\. Put beside this script: data/weights\.pt$"
    ):
        script, verdict = script_of("loaded.py:Net", "3")
    assert "Put beside this script: data/weights.pt\n" in script
    ((status, output, _),) = run_elsewhere(
        user_folder, [script], beside=[("data/weights.pt", user_folder / "data" / "weights.pt")]
    )
    assert (status, f"== verdict: {verdict}" in output) == (1, True)
    packed, _ = script_of(in_program(PROGRAM), ONES)
    version = "{}.{}".format(*sys.version_info)
    assert f"Needs Python {version} and torch." in packed
    other_python = re.sub(rf"'{version}'", "'3.9'", packed)
    installed, _ = script_of("installed.py:sign", "3")
    assert "Needs torch and scipy." in installed
    ended = run_elsewhere(user_folder, [script, other_python, installed], more=[("cloudpickle.py", "")])
    says = (
        "data/weights.pt is not beside this script",
        "code that Python 3.9 compiled",
        "the module 'scipy' is not installed",
    )
    for text, (status, _, errors) in zip(says, ended, strict=True):
        (line,) = errors.splitlines()
        assert (status, text in line) == (2, True), errors


def test_another_cloudpickle_does_not_stand_in_for_the_one_that_packed(user_folder):
    script, _ = script_of(in_program(PROGRAM), ONES)
    ((status, _, errors),) = run_elsewhere(user_folder, [script], more=[("cloudpickle.py", "")])
    assert status == 1, errors


def test_the_command_prints_scripts_that_travel(user_folder, capsys):
    assert _run(["check", "model.py:sign", "--input", "3", "--compiler", "jit.trace", "--save", "saved.py"]) == 0
    scripts = []
    for cell in ("saved.py::sign::jit.trace", "suite.py::sign::jit.trace"):
        capsys.readouterr()
        assert _run(["repro", cell]) == 0
        scripts.append(capsys.readouterr().out)
    assert _run(["check", "torch.nn:Identity", "--input", "3", "--compiler", "jit.trace", "--save", "none.py"]) == 0
    capsys.readouterr()
    assert _run(["repro", "none.py::Identity::jit.trace"]) == 0  # it carries no file
    scripts.append(capsys.readouterr().out)
    assert [status for status, _, _ in run_elsewhere(user_folder, scripts)] == [1, 1, 0]
