"""What a tool may add to `recapture report`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from recapture.report.cell_filter import CellFilter


class ReportAddition:
    """The options that a tool adds to `recapture report`, and what the command then does with them.

    A tool has a dataclass of option fields, derived from this class, which overrides the methods that it needs.
    """

    key: ClassVar[str] = ""
    """Where ``--json`` has what `render` returned; empty for a tool that renders no files."""

    def print_instead(self, roots: tuple[Path, ...], cells: CellFilter, *, as_json: bool) -> bool:  # noqa: ARG002
        """Print something else than reports if an option asks for it; return whether it did."""
        return False

    def find(self, root: Path) -> list[Path]:  # noqa: ARG002
        """Return the files at or below a directory that this tool renders."""
        return []

    def render(self, path: Path, out: Console | None) -> Any:
        """Write the report of a file that `find` returned, print it to `out`, and return its content for ``--json``."""

    def finish(self, rendered: list[Any]) -> None:
        """Go on with what `render` returned for all files."""
