"""The search for the smallest program: passes of edits, repeated until none of them gives a smaller program."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recapture.tools.explain.reduce.definition_edits import definition_edits, input_edits, without_unused_imports
from recapture.tools.explain.reduce.expression_edits import item_drops, number_edits, parts
from recapture.tools.explain.reduce.program import Program, copied, text_of, unbound, weight
from recapture.tools.explain.reduce.statement_edits import deletions, hoists, inlinings

if TYPE_CHECKING:
    import ast
    from collections.abc import Callable, Iterator

    from recapture.tools.explain.reduce.candidates import CandidateRunner

    Edit = Callable[[list[ast.AST]], object]
    Pass = Callable[[ast.Module, str], Iterator[Edit]]

PASSES: tuple[Pass, ...] = (
    deletions,
    input_edits,
    hoists,
    item_drops,
    definition_edits,
    parts,
    inlinings,
    number_edits,
)
"""The passes in order: runs of statements first, single numbers last."""


class Search:
    """The reduction of one program; `best` is the smallest so far, which an interruption leaves as it is.

    `advanced` is called with every smaller program.
    """

    def __init__(self, runner: CandidateRunner, program: Program, advanced: Callable[[Program], object]) -> None:
        self.runner = runner
        self.best = program
        self.finished = False
        self._advanced = advanced
        self._allowed = unbound(program.tree)

    def run(self) -> None:
        """Search until nothing helps any more, or until the time is over."""
        while True:
            before = weight(self.best.tree)
            for one in PASSES:
                self._exhaust(one)
                if self.runner.is_over:
                    return
            if weight(self.best.tree) == before:
                break
        self._exhaust(lambda tree, _: iter([without_unused_imports(tree)]))
        self.finished = not self.runner.is_over

    def _exhaust(self, one: Pass) -> None:
        """Apply the edits of a pass until none of them gives a smaller program; go on behind the last that did."""
        begin = 0
        while not self.runner.is_over:
            edits = list(one(self.best.tree, self.best.name))
            order = [*edits[begin:], *edits[:begin]]
            found = self.runner.first(map(self._candidate, order))
            if found is None:
                return
            number, tree = found
            begin = (begin + number) % max(len(edits), 1)
            self.best = self.best._replace(tree=tree)
            self._advanced(self.best)

    def _candidate(self, edit: Edit) -> ast.Module | None:
        """Return an edited program; None if it is not smaller, not valid, or uses names that it does not have."""
        tree = copied(self.best.tree, edit)
        if tree is None:
            return None
        try:
            smaller = weight(tree) < weight(self.best.tree)
            if not smaller or not unbound(tree) <= self._allowed:
                return None
            compile(text_of(tree), "candidate", "exec", dont_inherit=True)
        except (SyntaxError, ValueError, TypeError, AttributeError, RecursionError):  # no program
            return None
        return tree
