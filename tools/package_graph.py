"""Draw the packages of recapture and their imports, as they are in the source.

``python tools/package_graph.py --write`` writes docs/packages.svg and the table in ARCHITECTURE.md; without ``--write``
it prints the table. An import of a higher layer, or a cycle, ends it with exit status 1. It needs grimp, which comes
with import-linter. The order of the layers is that of pyproject.toml.
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

BOX_WIDTH, BOX_HEIGHT, ROW_HEIGHT, COLUMN_WIDTH, MARGIN = 150, 34, 66, 220, 24
"""Sizes of the drawing, in pixels."""

Imports = dict[str, set[str]]
"""The packages that each package imports, from the highest layer to the lowest."""


def layers(pyproject: Path = ROOT / "pyproject.toml") -> list[str]:
    """Return the names of the packages, highest layer first, as the layers contract of import-linter lists them."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    contract = next(one for one in contracts if one["type"] == "layers")
    return [name.removeprefix("recapture.") for name in contract["layers"]]


def package_imports(names: list[str]) -> Imports:
    """Read the imports between packages from the source, those for type checking included."""
    graph = grimp.build_graph("recapture", cache_dir=None)
    found: Imports = {name: set() for name in names}
    for module in graph.modules:
        parts = module.split(".")
        if len(parts) < 2 or parts[1] not in found:
            continue
        for imported in graph.find_modules_directly_imported_by(module):
            target = imported.split(".")
            if len(target) > 1 and target[1] in found and target[1] != parts[1]:
                found[parts[1]].add(target[1])
    return found


def upward(imports: Imports) -> list[str]:
    """Return the imports of a layer that is not below; empty means that there is no cycle either."""
    order = list(imports)
    return [
        f"{name} imports {one}"
        for name in order
        for one in sorted(imports[name])
        if order.index(one) < order.index(name)
    ]


def direct(imports: Imports) -> Imports:
    """Leave out the imports that a chain of other imports implies."""
    below: Imports = {}
    for name in reversed(imports):
        below[name] = set().union(imports[name], *(below[one] for one in imports[name]))
    return {
        name: {one for one in targets if not any(one in below[other] for other in targets if other != one)}
        for name, targets in imports.items()
    }


def table(imports: Imports) -> str:
    """Return the matrix of imports as text: a row imports the columns that are marked."""
    names = list(reversed(imports))
    wide = max(map(len, names))
    heads = [name[:5] for name in names]
    lines = [" ".join([" " * wide, *(head.ljust(5) for head in heads)]).rstrip()]
    for number, name in enumerate(names):
        marks = ["x" if one in imports[name] else "\\" if one == name else "." for one in names[: number + 1]]
        lines.append(" ".join([name.ljust(wide), *(mark.ljust(5) for mark in marks)]).rstrip())
    return "\n".join(lines)


def arrow(start: tuple[int, int], end: tuple[int, int]) -> str:
    """Return the path of an arrow between two boxes, given by their upper left corners, that crosses no other box."""
    (x, y), (to_x, to_y) = start, end
    middle, half = BOX_WIDTH // 2, BOX_HEIGHT // 2
    if to_x > x:  # sideways over the free column, then down; it leaves a box below the place where others arrive
        return f"M{x + BOX_WIDTH},{y + half + 9} H{to_x + middle} V{to_y}"
    if to_x < x:  # down, then sideways
        return f"M{x + middle},{y + BOX_HEIGHT} V{to_y + half - 9} H{to_x + BOX_WIDTH}"
    if to_y - y > ROW_HEIGHT:  # around the boxes between
        return f"M{x},{y + half} H{x - MARGIN // 2} V{to_y + half} H{to_x}"
    return f"M{x + middle},{y + BOX_HEIGHT} V{to_y}"


def drawing(imports: Imports) -> str:
    """Return the drawing as SVG: arrows point from a package to those it imports; implied arrows are left out."""
    arrows = direct(imports)
    height: dict[str, int] = {}
    for name in reversed(imports):
        height[name] = 1 + max((height[one] for one in imports[name]), default=-1)
    top = max(height.values())
    place: dict[str, tuple[int, int]] = {}
    for name in reversed(imports):
        column = sum(height[name] == height[other] for other in place)
        place[name] = (MARGIN + column * COLUMN_WIDTH, MARGIN + (top - height[name]) * ROW_HEIGHT)
    width = max(x for x, _ in place.values()) + BOX_WIDTH + MARGIN
    tall = max(y for _, y in place.values()) + BOX_HEIGHT + MARGIN
    size = f'width="{width}" height="{tall}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {width} {tall}" style="font: 15px sans-serif">',
        "<title>The packages of recapture and their imports</title>",
        '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">',
        '<path d="M0,0 L9,4 L0,8 z" fill="#55606e"/></marker></defs>',
        f'<rect width="{width}" height="{tall}" rx="8" fill="#ffffff" stroke="#c9d1d9"/>',
    ]
    for name, targets in arrows.items():
        lines = [arrow(place[name], place[one]) for one in sorted(targets)]
        parts += [f'<path d="{line}" fill="none" stroke="#55606e" marker-end="url(#head)"/>' for line in lines]
    for name, (x, y) in place.items():
        parts.append(
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="5" fill="#eaf1fb" stroke="#3b6ea8"/>'
            f'<text x="{x + BOX_WIDTH // 2}" y="{y + 22}" text-anchor="middle" fill="#12263f">{name}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def with_table(text: str, imports: Imports) -> str:
    """Return the text of ARCHITECTURE.md with the table between its two marks replaced."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n```text\n{table(imports)}\n```\n{END}{after}"


def main() -> int:
    """Print or write the table and the drawing; 1 where a package imports a higher layer."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write docs/packages.svg and the table in ARCHITECTURE.md")
    options = parser.parse_args()
    imports = package_imports(layers())
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
