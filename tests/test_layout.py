"""How the package is laid out: directions of imports, sizes, names, and what only one module may touch."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from recapture.cli.main import COMMANDS

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "recapture"
MODULES = sorted(PACKAGE.rglob("*.py"))

LONGEST_MODULE = 350
"""Lines of a module, all of them counted."""

LONGEST_TEST_FILE = 500
"""Lines of a file of tests, all of them counted."""

LONGER = {
    "suites/autograd.py": "the address of a case begins with the name of its file, and records name its lines",
    "suites/modules.py": "the address of a case begins with the name of its file, and records name its lines",
}
"""Files that may be longer than LONGEST_MODULE, with the reason."""

LONGEST_FUNCTION = 60
"""Lines of a function without its docstring; a longer one says why in a comment ``# long: REASON`` on its first line."""

MOST_PACKAGES = 12

MAY_ASK_FOR_ITS_FILE = {"base/paths.py", "pool/bootstrap.py"}
"""The modules that may use ``__file__``: the second runs before the package can be imported."""

MAY_USE_PRIVATE_TORCH = {
    "base/torch_compat.py": None,
    "base/torch_preload.py": {"_inductor"},
    "base/torch_wrapper.py": {"_inductor"},
    "base/torch_graphs.py": None,
    "base/torch_operators.py": None,
    "base/torch_places.py": {"_dynamo"},
    "base/torch_reports.py": None,
    "base/torch_settings.py": None,
    "base/torch_tensors.py": None,
    "base/torch_trace.py": None,
    "base/torch_watch.py": None,
    # AOTInductor's documented interface: torch._inductor.aoti_compile_and_package, aoti_load_package.
    # torch.utils._pytree: containers as torch.export knows them, which has no public name in the releases supported.
    "declare/compilers/export.py": {"_inductor", "_pytree"},
}
"""The modules that may use names of torch that begin with an underscore, and which; None: all."""


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def private_names(tree: ast.AST) -> set[str]:
    """The names with an underscore that code takes from torch, by import or by attribute."""
    dotted = [one.module or "" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom)]
    dotted += [alias.name for one in ast.walk(tree) if isinstance(one, ast.Import) for alias in one.names]
    dotted += [
        f"{one.module}.{alias.name}" for one in ast.walk(tree) if isinstance(one, ast.ImportFrom) for alias in one.names
    ]
    dotted += [ast.unparse(one) for one in ast.walk(tree) if isinstance(one, ast.Attribute)]
    parts = [one.split(".") for one in dotted if one.startswith("torch.")]
    return {part for one in parts for part in one if part.startswith("_") and not part.startswith("__")}


def long_functions(source: str) -> list[str]:
    lines = source.splitlines()
    found = []
    for one in ast.walk(ast.parse(source)):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = one.body[0] if ast.get_docstring(one) is not None else None
            said = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
            head = "\n".join(lines[one.lineno - 1 : one.body[0].lineno])
            if one.end_lineno - one.lineno + 1 - said > LONGEST_FUNCTION and "# long: " not in head:
                found.append(one.name)
    return found


def too_long(root: Path) -> list[str]:
    """The files of a checkout with more lines than allowed, each with their number."""
    folders = ("recapture", "benchmarks", "docs", "examples", "suites", "tools")
    code = [*root.glob("*.py"), *(path for name in folders for path in (root / name).rglob("*.py"))]
    limits = dict.fromkeys(code, LONGEST_MODULE) | dict.fromkeys((root / "tests").rglob("*.py"), LONGEST_TEST_FILE)
    lines = {path.relative_to(root).as_posix(): len(path.read_bytes().splitlines()) for path in limits}
    return [
        f"{name} has {lines[name]} lines"
        for path, most in sorted(limits.items())
        if lines[name := path.relative_to(root).as_posix()] > most and name not in LONGER
    ]


def test_no_file_is_too_long():
    assert too_long(REPOSITORY) == []
    lengths = {name: len((REPOSITORY / name).read_bytes().splitlines()) for name in LONGER}
    assert {name for name, number in lengths.items() if number <= LONGEST_MODULE} == set(), "no longer exceptions"


def test_a_file_that_is_too_long_is_found(tmp_path):
    for name, number in (("tools/a.py", 350), ("tools/b.py", 351), ("tests/c.py", 500), ("tests/x/d.py", 501)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x = 1\n" * number, encoding="utf-8")
    assert too_long(tmp_path) == ["tests/x/d.py has 501 lines", "tools/b.py has 351 lines"]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_keeps_the_rules(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    name = name_of(path)
    assert long_functions(source) == []
    asks = any(isinstance(one, ast.Name) and one.id == "__file__" for one in ast.walk(tree))
    assert not asks or name in MAY_ASK_FOR_ITS_FILE
    allowed = MAY_USE_PRIVATE_TORCH.get(name, set())
    assert allowed is None or private_names(tree) <= allowed
    assert path.stem not in sys.stdlib_module_names - {"__main__"}, "echoes a module of the standard library"


def twins(modules):
    """Names of modules, and of classes, that several modules define, with the layers of those modules."""
    stems, classes = defaultdict(list), defaultdict(list)
    for path in modules:
        layer = path.relative_to(PACKAGE).parts[0]
        if not path.stem.startswith("__"):
            stems[path.stem].append(layer)
        for one in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(one, ast.ClassDef):
                classes[one.name].append(layer)
    return tuple({name: set(layers) for name, layers in found.items() if len(layers) > 1} for found in (stems, classes))


def test_only_what_belongs_to_one_command_shares_a_name():
    modules, classes = twins(MODULES)
    assert classes == {}
    assert modules.pop("speedups") == {"results", "report"}
    assert modules.pop("tasks") == {"bench", "conformance"}
    assert modules
    for name, layers in modules.items():
        assert name in COMMANDS or (PACKAGE / "analysis" / f"{name}.py").is_file()
        assert layers <= {"cli", "analysis", "conformance", "report"}


def test_there_are_few_packages_and_each_says_its_job():
    packages = [path for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()]
    assert len(packages) <= MOST_PACKAGES
    for package in packages:
        docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8")))
        assert docstring, package.name
        assert docstring.splitlines()[0].rstrip().endswith((".", ":")) or len(docstring.splitlines()) == 1


def test_the_rules_find_what_they_forbid():
    long = "def f():\n" + "    pass\n" * LONGEST_FUNCTION
    assert long_functions(long) == ["f"]
    assert long_functions(long.replace("():", "():  # long: a table")) == []
    assert long_functions("def f():\n    '''" + "word\n" * 90 + "    '''\n") == []
    assert private_names(ast.parse("import torch._dynamo")) == {"_dynamo"}
    assert private_names(ast.parse("from torch import _C")) == {"_C"}
    assert private_names(ast.parse("x = torch.fx._symbolic_trace.f; y = torch.__version__")) == {"_symbolic_trace"}


@pytest.fixture
def lint(tmp_path):
    """Run import-linter over a copy of the package, after lines were added to some of its modules."""
    program = Path(sys.executable).with_name("lint-imports")
    if not program.is_file():
        pytest.skip("import-linter is not installed")
    shutil.copytree(PACKAGE, tmp_path / "recapture", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)

    def run(*planted: tuple[str, str]) -> subprocess.CompletedProcess[str]:
        for module, line in planted:
            path = tmp_path / "recapture" / module
            path.write_text(path.read_text(encoding="utf-8") + f"\n{line}\n", encoding="utf-8")
        return subprocess.run(
            [program, "--no-cache"], cwd=tmp_path, capture_output=True, text=True, check=False, env={"PYTHONPATH": ""}
        )

    return run


def test_imports_go_down_alone(lint):
    done = lint()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "broken" in done.stdout


PLANTED_IMPORTS = (
    ("results.verdicts", "import recapture.{}", "report.markdown", "Each layer imports only the layers below it"),
    ("base.text", "import recapture.{}", "machine.pins", "Each layer imports only the layers below it"),
    ("pool.client", "import recapture.{}", "declare.case", "The pool knows tasks by name"),
    (
        "analysis.environment_facts",
        "def f():\n    import recapture.{}",
        "report.markdown",
        "A diff is computed without presentation",
    ),
)
"""Module, the import to plant in it, the module that it imports, and the beginning of the contract that it breaks."""


def test_every_upward_import_breaks_a_contract(lint):
    done = lint(*((f"{name.replace('.', '/')}.py", line.format(above)) for name, line, above, _ in PLANTED_IMPORTS))
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [one for one in done.stdout.splitlines() if one.endswith("BROKEN")]
    _, _, said = done.stdout.partition("Broken contracts")
    for name, _, above, contract in PLANTED_IMPORTS:
        assert any(one.startswith(contract) for one in broken), done.stdout
        (section,) = [one for one in re.split(r"\n(?=.+\n-{5,}\n)", said) if one.startswith(contract)]
        assert f"recapture.{name} -> recapture.{above} (" in section, done.stdout
