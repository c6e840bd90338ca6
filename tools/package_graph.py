"""Draw the packages of the core and the tools of recapture, and their imports, as they are in the source.

``python tools/package_graph.py --write`` writes docs/packages.svg and the table in ARCHITECTURE.md; without ``--write``
it prints the table. An import of a higher layer, of one tool by another, or a cycle, ends it with exit status 1. It
needs grimp, which comes with import-linter. The order of the layers is that of pyproject.toml.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import grimp

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

ROOT = Path(__file__).resolve().parents[1]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
DRAWING = ROOT / "docs" / "packages.svg"
BEGIN = "<!-- begin: written by tools/package_graph.py --write -->"
END = "<!-- end -->"

BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, COLUMN_WIDTH, LANE_WIDTH, MARGIN = 150, 34, 58, 172, 22, 24
"""Sizes of the drawing, in pixels."""

Imports = dict[str, set[str]]
"""The packages that each package imports, the tools first, then the core from the highest layer to the lowest."""

TOOLS = "tools"


def layers(pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the packages of the core, highest layer first, as the contract of import-linter lists them."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    contract = next(contract for contract in contracts if contract["type"] == "layers")
    names = [name.removeprefix("recapture.") for name in contract["layers"]]
    return [name for name in names if name != TOOLS]


def tools(folder: Path = ROOT / "recapture" / TOOLS) -> list[str]:
    """Return the tools, as ``tools.NAME``: a folder each."""
    return [f"{TOOLS}.{path.parent.name}" for path in sorted(folder.glob("*/__init__.py"))]


def package_of(module: str) -> str:
    """Return the package of the core, or the tool, that a module belongs to."""
    parts = module.split(".")[1:]
    return ".".join(parts[:2] if parts[:1] == [TOOLS] else parts[:1])


def package_imports(names: list[str]) -> Imports:
    """Read the imports between packages from the source, those for type checking included."""
    # Without a cache, because the source changes between two calls, and a copy is drawn in tests.
    graph = grimp.build_graph("recapture", cache_dir=None)
    imports: Imports = {name: set() for name in names}
    for module in graph.modules:
        package = package_of(module)
        if package in imports:
            targets = map(package_of, graph.find_modules_directly_imported_by(module))
            imports[package] |= {target for target in targets if target in imports and target != package}
    return imports


def levels(imports: Imports) -> dict[str, int]:
    """Return the level of each package, from 1 for the highest layer; all tools are on level 0, above the core."""
    core = [name for name in imports if not name.startswith(f"{TOOLS}.")]
    return {name: core.index(name) + 1 if name in core else 0 for name in imports}


def upward(imports: Imports) -> list[str]:
    """Return the imports of what is not below, tools by tools included; empty means that there is no cycle either."""
    level = levels(imports)
    return [
        f"{name} imports {target}"
        for name, targets in imports.items()
        for target in sorted(targets)
        if level[target] <= level[name]
    ]


def direct(imports: Imports) -> Imports:
    """Leave out the imports that a chain of other imports implies."""
    below: Imports = {}
    for name in reversed(imports):
        below[name] = set().union(imports[name], *(below[target] for target in imports[name]))
    return {
        name: {target for target in targets if not any(target in below[other] for other in targets - {target})}
        for name, targets in imports.items()
    }


def table(imports: Imports) -> str:
    """Return the matrix of imports as text: a row imports the columns that are marked; no column imports a tool."""
    names = list(reversed(imports))
    columns = [name for name in names if not name.startswith(f"{TOOLS}.")]
    width = max(map(len, names))
    lines = [" ".join([" " * width, *(column[:5].ljust(5) for column in columns)]).rstrip()]
    for number, name in enumerate(names):
        marks = ["x" if column in imports[name] else "." for column in columns[:number]]
        marks += ["\\"] if name in columns else []
        lines.append(" ".join([name.ljust(width), *(mark.ljust(5) for mark in marks)]).rstrip())
    return "\n".join(lines)


def lanes(imports: Imports) -> dict[tuple[int, int], int]:
    """Return the lane beside the boxes for each arrow that passes a box, given by its levels: the tools' is 0.

    Arrows that pass the same box have different lanes, the shortest the innermost.
    """
    level = levels(imports)
    spans = {(level[name], level[target]) for name, targets in imports.items() for target in targets}
    chosen: dict[tuple[int, int], int] = {}
    for begin, end in sorted(spans, key=lambda span: (span[1] - span[0], span)):
        if begin and end == begin + 1:
            continue  # straight down to the next box
        # Two arrows that share a part of their height would lie on each other.
        taken = {lane for (first, last), lane in chosen.items() if first < end and begin < last}
        chosen[begin, end] = next(lane for lane in range(len(spans)) if lane not in taken)
    return chosen


def drawing(imports: Imports) -> str:
    """Return the drawing as SVG: a row of tools above the core in its order, arrows beside it.

    Arrows point from a package to those it imports. Implied arrows are left out.
    """
    arrows = direct(imports)
    level = levels(imports)
    lane = lanes(arrows)
    tool_names = [name for name in imports if not level[name]]
    place = {name: (MARGIN, MARGIN + level[name] * ROW_HEIGHT) for name in imports}
    place |= {name: (MARGIN + number * COLUMN_WIDTH, MARGIN) for number, name in enumerate(tool_names)}
    side = MARGIN + BOX_WIDTH
    paths = []
    for name, target in ((name, target) for name, targets in arrows.items() for target in sorted(targets)):
        (x, y), (_, to_y) = place[name], place[target]
        span = level[name], level[target]
        if span not in lane:
            paths.append(f"M{x + BOX_WIDTH // 2},{y + BOX_HEIGHT} V{to_y}")
            continue
        # An arrow leaves a box in its lower half and arrives in the upper half, so that the two do not overlap.
        start = f"M{x + BOX_WIDTH},{y + BOX_HEIGHT - 8}"
        if not level[name]:
            start = f"M{x + BOX_WIDTH // 2},{y + BOX_HEIGHT} V{y + (BOX_HEIGHT + ROW_HEIGHT) // 2}"
        paths.append(f"{start} H{side + (lane[span] + 1) * LANE_WIDTH} V{to_y + 8} H{side}")
    width = max([x + BOX_WIDTH for x, _ in place.values()] + [side + (len(lane) + 1) * LANE_WIDTH]) + MARGIN
    height = max(y for _, y in place.values()) + BOX_HEIGHT + MARGIN
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} style="font: 15px sans-serif">',
        "<title>The tools and the core of recapture, and their imports</title>",
        '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">',
        '<path d="M0,0 L9,4 L0,8 z" fill="#55606e"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff" stroke="#c9d1d9"/>',
    ]
    parts += [f'<path d="{path}" fill="none" stroke="#55606e" marker-end="url(#head)"/>' for path in paths]
    for name, (x, y) in place.items():
        fill = "#eaf1fb" if level[name] else "#f6efe3"
        parts.append(
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5" fill="{fill}" stroke="#3b6ea8"/>'
            f'<text x="{x + BOX_WIDTH // 2}" y="{y + 22}" text-anchor="middle" fill="#12263f">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def with_table(text: str, imports: Imports) -> str:
    """Return the text of ARCHITECTURE.md with the table between its two marks replaced."""
    before, inside = text.split(BEGIN)
    _, after = inside.split(END)
    return f"{before}{BEGIN}\n```text\n{table(imports)}\n```\n{END}{after}"


def main() -> int:
    """Print or write the table and the drawing; 1 where an import goes up or from tool to tool."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/packages.svg and the table in ARCHITECTURE.md")
    options = parser.parse_args()
    imports = package_imports([*tools(), *layers()])
    wrong = upward(imports)
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    if options.write:
        DRAWING.write_text(drawing(imports), encoding="utf-8")
        ARCHITECTURE.write_text(with_table(ARCHITECTURE.read_text(encoding="utf-8"), imports), encoding="utf-8")
    else:
        print(table(imports))
    return 0


if __name__ == "__main__":
    sys.exit(main())
