"""The console for all terminal output, which prevents text from controlling the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.segment import Segment

from recapture.base.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import ConsoleOptions, RenderableType


class SafeConsole(Console):
    """A console that replaces control characters in all text; only rich itself controls the terminal.

    A printed string is one line: line breaks inside it are replaced as well, so that no name can add a line. It may
    begin with empty lines.
    """

    def print(self, *objects: Any, **options: Any) -> None:
        """Print objects as `rich.console.Console.print` does, each string as one line."""
        super().print(*(_line(one) if isinstance(one, str) else one for one in objects), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to print, with control characters removed from text segments."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else printable(segment.text)
            yield segment if text == segment.text else Segment(text, segment.style, segment.control)

    def on_broken_pipe(self) -> None:
        """Let the command end when the reader of its output is gone; without a reader of its messages, go on silently.

        Rich itself would exit with status 1, which means that a regression was found.
        """
        if not self.stderr:
            raise  # noqa: PLE0704 - rich calls this while it handles the BrokenPipeError
        self.quiet = True


def _line(text: str) -> str:
    words = text.lstrip("\n")
    return text[: len(text) - len(words)] + (words if words.isprintable() else printable(words, keep=""))
