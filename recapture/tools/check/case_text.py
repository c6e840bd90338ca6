"""Writes the file of the case that a check runs: the user's target, the example, and the derived inputs by name."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.paths import module_file
from recapture.tools.check.request import as_literals

if TYPE_CHECKING:
    from recapture.tools.check.request import CheckRequest, Pickled

SUITE = "check"
"""Name of the suite of a generated file."""

OWN_CODE = ("tools", "check")
HELPERS = (
    ("torch_api", "libraries.py"),
    *((*OWN_CODE, f"{name}.py") for name in ("loading", "walking", "tensor_changes", "variants")),
)
"""Modules whose source a generated file contains, as parts of their paths in the package."""

MOST_MODULES = 400
"""The most modules that are named for the server to import before it forks."""

TEMPLATE = '''\
"""The case that `recapture check` made of {title}: the target, the example, and inputs derived from it."""

from __future__ import annotations

from recapture import case, workload

{helpers}
# --- the target and its inputs --------------------------------------------------------------------------------------

FOUND = {found}
FACTS = {facts!r}


def example():
    """Make the arguments that a compiler captures with."""
    return {example}


def derived(name):
    """Make the arguments of one variant of the example."""
    return derive(name, example(), **FACTS)


{declared}

case(
    example=example,
    held_out=[{held_out}],
    other_ranks=[{other_ranks}],
    refused=[{refused}],
    backward={backward},
    train_step={train_step},
)({name})


@workload(inputs=example, name={name!r})
def the_workload():
    """Make what `--time` measures."""
    return as_module(load_target())


def preloaded():
    """Name the modules that the target imports, so that they are imported once and not for every cell."""
{imports}
'''

MODULE = '''\
def load_target():
    """Make the module anew."""
    return made_for(build(FOUND, {shown!r}), train={train})


class {name}:
    """{title}"""

    def __new__(cls):
        return load_target()

    def forward(self, *args):
        """Take any arguments: the module itself checks them."""
'''

FUNCTION = '''\
def load_target():
    """Return the function."""
    return FOUND


{name} = load_target()
'''

CALLABLE = '''\
def load_target():
    """Return what the function calls."""
    return FOUND


def {name}(*args):
    """{title}"""
    return FOUND(*args)
'''


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What a child found out about a request.

    `error` is one line that says why nothing can be checked. `kind` says how the target is declared, `name` how it is
    called. `inputs` are the names of the derived inputs that eager accepts, `other_ranks` those that it accepts and
    whose tensors have more or fewer dimensions than the example's, `refused` the others with eager's reason.
    `must_raise` are those of them that compilers are called with: any exception is right, and a value is wrong.
    `constants`: see `variants`. `modules` are what the target imported. `seconds` is the time of one call of
    eager, `random` whether its result depends on the seed, `nonfinite` whether its source speaks of NaN or infinity.
    """

    error: str | None = None
    kind: str = "function"
    name: str = "target"
    inputs: tuple[str, ...] = ()
    other_ranks: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    must_raise: tuple[str, ...] = ()
    untried: tuple[str, ...] = ()
    constants: tuple[int | float | str, ...] = ()
    modules: tuple[str, ...] = ()
    seconds: float = 0.0
    random: bool = False
    nonfinite: bool = False

    def facts(self, request: CheckRequest) -> dict[str, Any]:
        """Return the keyword arguments of `variants`."""
        return {
            "constants": self.constants,
            "nonfinite": request.nonfinite or self.nonfinite,
            "dtypes": request.dtypes,
            "careful": request.device == "cuda",
            "steps": request.steps,
        }


def case_file(request: CheckRequest, prepared: Prepared) -> str:
    """Return the source of a generated case. It needs torch and the user's code, and nothing else once printed."""
    name = case_name(prepared.name)
    title = _in_docstring(request.title)
    kinds = {"module": MODULE, "function": FUNCTION, "callable": CALLABLE}
    derived = [f"lambda: derived({one!r})" for one in prepared.inputs]
    own = [f"lambda: arguments_from({_unpickled(one)}, FOUND)" for one in request.held_out.values()]
    imports = [f"    import {one}  # noqa: F401" for one in prepared.modules[:MOST_MODULES]]
    return TEMPLATE.format(
        title=title,
        helpers="\n".join(map(_source, HELPERS)),
        found=found_expression(request),
        facts=prepared.facts(request),
        example=example_expression(request),
        declared=kinds[prepared.kind].format(name=name, shown=request.name, title=title, train=request.train),
        held_out=_listed([*derived, *own]),
        other_ranks=_listed([f"lambda: derived({one!r})" for one in prepared.other_ranks]),
        refused=_listed([f"lambda: derived({one!r})" for one in prepared.must_raise]),
        backward=None if prepared.kind != "module" or request.train else False,
        train_step=1e-4 if request.train else None,
        name=name,
        imports="\n".join(imports) or "    return",
    )


def _listed(items: list[str]) -> str:
    return "".join(f"\n        {one}," for one in items) + ("\n    " if items else "")


def case_name(name: str) -> str:
    """Return a name for the case that no helper of the generated file has."""
    plain = re.sub(r"\W", "_", name)
    plain = plain if plain.isidentifier() else "target"
    taken = {one for helper in HELPERS for one in _names(_source(helper))}
    taken |= {"FOUND", "FACTS", "example", "derived", "case", "workload", "load_target", "the_workload", "preloaded"}
    while plain in taken:
        plain += "_"
    return plain


def found_expression(request: CheckRequest) -> str:
    """Return the expression that finds the target."""
    if request.pickled is not None:
        return _unpickled(request.pickled)
    return f"find({request.place!r}, {request.name!r}, {request.paths!r})"


def example_expression(request: CheckRequest) -> str:
    """Return the expression that makes the example's arguments."""
    if request.pickled_example is not None:
        return f"arguments_from({_unpickled(request.pickled_example)}, FOUND)"
    if request.inputs is not None:
        return f"arguments_from(find({request.inputs[0]!r}, {request.inputs[1]!r})(), FOUND)"
    return f"({''.join(f'{one}, ' for one in as_literals(request.given))})"


def _unpickled(one: Pickled) -> str:
    return f"unpacked({one.text!r}, {one.sources!r}, {one.paths!r})"


def _source(helper: tuple[str, ...]) -> str:
    """Return a helper's source without its docstring, ``__future__``, imports of other helpers, and ``__all__``."""
    text = module_file(*helper).read_text(encoding="utf-8")
    lines: list[str | None] = list(text.split("\n"))
    tree = ast.parse(text)
    for node in [tree.body[0], *filter(_is_left_out, tree.body)]:
        lines[node.lineno - 1 : node.end_lineno] = [None] * (node.end_lineno - node.lineno + 1)  # type: ignore[operator]
    kept = "\n".join(line for line in lines if line is not None).strip("\n")
    return re.sub(r"\n{4,}", "\n\n\n", kept) + "\n"


def _is_left_out(node: ast.stmt) -> bool:
    if isinstance(node, ast.ImportFrom):
        return node.module == "__future__" or (node.module or "").startswith("recapture.")
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AugAssign) else []
    return any(ast.unparse(one) == "__all__" for one in targets)


def _names(text: str) -> set[str]:
    from recapture.cases.source import defined_names

    return defined_names(text)


def _in_docstring(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")
