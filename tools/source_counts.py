"""Count what makes a package easy or hard to read: ``python tools/source_counts.py [CHECKOUT]``.

It prints one line a count, so that two revisions can be compared with ``diff``: lines, files, depth of the import
graph, imports between packages, files with a single importer, names of local variables that say nothing, and comments.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from itertools import chain
from pathlib import Path

VAGUE_NAMES = frozenset(
    "one found made said kept given wanted shown mine theirs here rest far looked".split()  # noqa: SIM905
)
"""Names of variables that could mean anything."""


def module_name(root: Path, path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(tree: ast.AST, names: set[str]) -> set[str]:
    """Return the modules of the package that a module imports anywhere in its text, for type checking too."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            modules |= {f"{node.module}.{alias.name}" for alias in node.names} & names or {node.module} & names
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names} & names
    return modules


def bound_names(tree: ast.AST) -> list[str]:
    """Return the names that assignments, loops, parameters and the like bind, each as often as it is bound."""
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    names += [node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)]
    names += [node.name for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) and node.name]
    return names


def comments(source: str) -> int:
    """Return the number of comments in a source, without those for linters alone."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    texts = [token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT]
    return sum(not text.startswith(("noqa", "type:", "pragma", "fmt:")) or " - " in text for text in texts)


def depth(imports: dict[str, set[str]]) -> int:
    """Return the number of modules on the longest chain of imports; a circle counts as one module."""
    heights: dict[str, int] = {}

    def height(name: str, above: frozenset[str]) -> int:
        if name not in heights:
            below = [height(module, above | {name}) for module in imports[name] - above - {name}]
            heights[name] = 1 + max(below, default=0)
        return heights[name]

    return max(height(name, frozenset()) for name in sorted(imports))


def package_of(name: str) -> str:
    """Return the package of the core, or the tool, that a module belongs to."""
    parts = name.split(".")
    return ".".join(parts[1:3] if parts[1:2] == ["tools"] else parts[1:2]) or "(top)"


def main() -> None:
    """Print the counts of a checkout, of this one if none is named."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1]).resolve()
    sources = {module_name(root, path): path.read_text("utf-8") for path in sorted((root / "recapture").rglob("*.py"))}
    trees = {name: ast.parse(source) for name, source in sources.items()}
    imports = {name: imported_modules(tree, set(sources)) - {name} for name, tree in trees.items()}
    importers = Counter(chain.from_iterable(imports.values()))
    arrows = {(package_of(name), package_of(module)) for name in imports for module in imports[name]}
    bindings = list(chain.from_iterable(bound_names(tree) for tree in trees.values()))
    vague = sum(name in VAGUE_NAMES for name in bindings)
    lengths = sorted(len(source.splitlines()) for source in sources.values())
    commented = sum(map(comments, sources.values()))
    print(f"lines {sum(lengths)}")
    print(f"files {len(lengths)}")
    print(f"lines of the median file {lengths[len(lengths) // 2]}, of the longest {lengths[-1]}")
    print(f"files above 600 lines {sum(length > 600 for length in lengths)}")
    print(f"modules on the longest chain of imports {depth(imports)}")
    print(f"imports between modules {sum(map(len, imports.values()))}")
    print(f"imports between packages or tools {sum(source != target for source, target in arrows)}")
    print(f"files with one importer {sum(count == 1 for count in importers.values())}")
    print(f"bindings {len(bindings)}, of names that say nothing {vague} ({vague / len(bindings):.1%})")
    print(f"comments {commented} ({1000 * commented / sum(lengths):.0f} a thousand lines)")


if __name__ == "__main__":
    main()
