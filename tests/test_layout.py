"""How the package is laid out: directions of imports, sizes, names, and what only one module may touch."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = REPOSITORY / "recapture"
MODULES = sorted(PACKAGE.rglob("*.py"))

LONGEST_FUNCTION = 60
"""Lines of a function without its docstring; a longer one says why in a comment ``# long: REASON`` on its first line."""

MAY_ASK_FOR_ITS_FILE = {"base/paths.py", "pool/bootstrap.py"}
"""The modules that may use ``__file__``: the second runs before the package can be imported."""

PRIVATE_TO_TORCH = "torch_api/"
"""The package that may use any name of torch that begins with an underscore."""

MAY_USE_PRIVATE_TORCH = {
    # AOTInductor's documented interface: torch._inductor.aoti_compile_and_package, aoti_load_package.
    # torch.utils._pytree: containers as torch.export knows them, which has no public name in the releases supported.
    "cases/compilers/export.py": {"_inductor", "_pytree"},
}
"""Other modules that may use such names, and which."""


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


OF_TENSORS = {
    name
    for owner in (torch.Tensor, torch.nn.Module())
    for name in dir(owner)
    if name.startswith("_") and not name.startswith("__")
}
"""The private attributes of torch's tensors and modules, whatever the variable is called that holds one."""


def private_names(tree: ast.AST) -> set[str]:
    """The names with an underscore that code takes from torch or a tensor, by import or by attribute."""
    dotted = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    dotted += [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    dotted += [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    dotted += [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    parts = {part for name in dotted if name.startswith("torch.") for part in name.split(".")}
    names = {part for part in parts if part.startswith("_") and not part.startswith("__")}
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in OF_TENSORS]
    return names | {node.attr for node in attributes if ast.unparse(node.value) not in ("self", "cls")}


def long_functions(source: str) -> list[str]:
    lines = source.splitlines()
    names = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = node.body[0] if ast.get_docstring(node) is not None else None
            docstring_lines = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
            head = "\n".join(lines[node.lineno - 1 : node.body[0].lineno])
            if node.end_lineno - node.lineno + 1 - docstring_lines > LONGEST_FUNCTION and "# long: " not in head:
                names.append(node.name)
    return names


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_keeps_the_rules(path):
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    name = name_of(path)
    assert long_functions(source) == []
    asks = any(isinstance(node, ast.Name) and node.id == "__file__" for node in ast.walk(tree))
    assert not asks or name in MAY_ASK_FOR_ITS_FILE
    assert name.startswith(PRIVATE_TO_TORCH) or private_names(tree) <= MAY_USE_PRIVATE_TORCH.get(name, set())


def test_each_package_says_its_job():
    packages = [path.parent for path in PACKAGE.rglob("__init__.py")]
    assert len(packages) > 12
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
    assert private_names(ast.parse("base = x._base if x._is_view() else y[0]._backward_hooks")) == {
        "_base",
        "_is_view",
        "_backward_hooks",
    }
    assert private_names(ast.parse("self._values = x.values()")) == set()
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
    (
        "records.verdicts",
        "import recapture.{}",
        "report.conformance_report",
        "Each layer imports only the layers below it",
    ),
    ("base.text", "import recapture.{}", "machine.pins", "Each layer imports only the layers below it"),
    (
        "run.runner",
        "def f():\n    import recapture.{}",
        "tools.speed.job",
        "Each layer imports only the layers below it",
    ),
    ("pool.client", "import recapture.{}", "cases.case", "The pool knows tasks by name"),
    ("tools.compare.changes", "import recapture.{}", "tools.fleet.work", "No tool imports another"),
    ("judge.compare", "import recapture.{}", "machine.pins", "The judge knows what is private to torch"),
)
"""Module, the import to plant in it, the module that it imports, and the beginning of the contract that it breaks."""


def test_every_upward_import_breaks_a_contract(lint):
    done = lint(*((f"{name.replace('.', '/')}.py", line.format(above)) for name, line, above, _ in PLANTED_IMPORTS))
    assert done.returncode == 1, done.stdout + done.stderr
    broken = [line for line in done.stdout.splitlines() if line.endswith("BROKEN")]
    _, _, broken_contracts = done.stdout.partition("Broken contracts")
    for name, _, above, contract in PLANTED_IMPORTS:
        assert any(line.startswith(contract) for line in broken), done.stdout
        (section,) = [part for part in re.split(r"\n(?=.+\n-{5,}\n)", broken_contracts) if part.startswith(contract)]
        assert f"recapture.{name} -> recapture.{above} (" in section, done.stdout
