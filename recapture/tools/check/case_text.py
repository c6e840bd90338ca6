"""Writes the file of the case that a check runs: the user's target, the example, and the derived inputs by name."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from recapture.tools.check.request import CheckRequest, Pickled

SUITE = "check"
"""Name of the suite of a generated file."""

TAKEN = {
    *("OWN", "FACTS", "FILES", "example", "derived", "case", "workload", "the_workload", "preloaded"),
    *("OwnCode", "as_module", "unpacked", "derive"),
}
"""Names of a generated file."""

MOST_MODULES = 400
"""The most modules that are named for the server to import before it forks."""

TEMPLATE = '''\
"""The case that `recapture check` made of {title}: the target, the example, and inputs derived from it."""

from __future__ import annotations

from recapture import case, workload
from recapture.cases.own_code import OwnCode, as_module, unpacked
from recapture.tools.check.variants import derive

OWN = OwnCode(
{own_code})

FACTS = {facts!r}


def example():
    """Make the arguments that a compiler captures with."""
    return OWN.example()


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
    return as_module(OWN.load())


def preloaded():
    """Name the modules that the target imports, so that they are imported once and not for every cell."""
{imports}
'''

MODULE = '''\
class {name}:
    """{title}"""

    def __new__(cls):
        return OWN.load()

    def forward(self, *args):
        """Take any arguments: the module itself checks them."""
'''

FUNCTION = """\
{name} = OWN.load()
"""


class Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What a child found out about a request.

    `error` is one line that says why nothing can be checked. `kind` says how the target is declared, `name` how it is
    called, and `calling` has the arguments of `OwnCode` that say how it is called. `inputs` are the names of the
    derived inputs that eager accepts, `other_ranks` those that it accepts and whose tensors have more or fewer
    dimensions than the example's, `refused` the others with eager's reason. `must_raise` are those of them that
    compilers are called with: any exception is right, and a value is what `accepts_refused` counts. `unaffordable` are
    inputs that eager has not the time or memory for, `untried` those beyond the limit.
    `constants`, `sizes` and `careful`: see `variants`. `modules` are what the target imported,
    `operators` the custom operators that it registered. `seconds` is the time of one call
    of eager, `random` whether its result depends on the seed, `depends_on_calls` whether it depends on earlier calls,
    `nonfinite` whether its source speaks of NaN or infinity, `sets_fallback_random` whether it sets that option of
    Inductor, `size_of_one` whether a tensor of the example has such a size.
    `remarks` are sentences about what could not be compared.
    """

    error: str | None = None
    kind: str = "function"
    name: str = "target"
    calling: dict[str, Any] = {}
    inputs: tuple[str, ...] = ()
    other_ranks: tuple[str, ...] = ()
    refused: tuple[tuple[str, str], ...] = ()
    must_raise: tuple[str, ...] = ()
    unaffordable: tuple[tuple[str, str], ...] = ()
    untried: tuple[str, ...] = ()
    constants: tuple[int | float | str, ...] = ()
    sizes: tuple[tuple[int, int], ...] = ()
    careful: bool = False
    modules: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    seconds: float = 0.0
    random: bool = False
    depends_on_calls: bool = False
    nonfinite: bool = False
    size_of_one: bool = False
    sets_fallback_random: bool = False
    remarks: tuple[str, ...] = ()

    def facts(self, request: CheckRequest) -> dict[str, Any]:
        """Return the keyword arguments of `variants`."""
        on_gpu = request.device == "cuda"
        return {
            "constants": self.constants,
            "compared": self.sizes,
            "nonfinite": request.nonfinite or self.nonfinite,
            "dtypes": request.dtypes,
            "careful": on_gpu or self.careful,
            "probes": not on_gpu,
            "steps": request.steps,
        }


def case_file(request: CheckRequest, prepared: Prepared) -> str:
    """Return the source of a generated case."""
    name = case_name(prepared.name)
    title = _in_docstring(request.title)
    kinds = {"module": MODULE, "function": FUNCTION}
    derived = [f"lambda: derived({variant!r})" for variant in prepared.inputs]
    own = [f"lambda: OWN.arguments({_unpacked(pickled)})" for pickled in request.held_out.values()]
    imports = [f"    import {module}  # noqa: F401" for module in prepared.modules[:MOST_MODULES]]
    own_code = {**request.own_code, **prepared.calling}
    return TEMPLATE.format(
        title=title,
        own_code="".join(f"    {key}={value!r},\n" for key, value in own_code.items()),
        facts=prepared.facts(request),
        declared=kinds[prepared.kind].format(name=name, title=title),
        held_out=_listed([*derived, *own]),
        other_ranks=_listed([f"lambda: derived({variant!r})" for variant in prepared.other_ranks]),
        refused=_listed([f"lambda: derived({variant!r})" for variant in prepared.must_raise]),
        backward=None if prepared.kind != "module" or request.train else False,
        train_step=1e-4 if request.train else None,
        name=name,
        imports="\n".join(imports) or "    return",
    )


def _listed(items: list[str]) -> str:
    return "".join(f"\n        {item}," for item in items) + ("\n    " if items else "")


def case_name(name: str) -> str:
    """Return a name for the case that nothing else in the generated file has."""
    plain = re.sub(r"\W", "_", name)
    plain = plain if plain.isidentifier() else "target"
    while plain in TAKEN:
        plain += "_"
    return plain


def _unpacked(pickled: Pickled) -> str:
    return f"unpacked{msgspec.structs.astuple(pickled)!r}"


def _in_docstring(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")
