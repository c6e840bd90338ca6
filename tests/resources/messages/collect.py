"""Makes torch fail in some of its ways and prints what it says: one JSON object of name → [type, message].

Run in a process of its own, with the Python of any image: ``python collect.py``.
"""

import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path

import torch


def data_dependent(x):
    """A branch that fullgraph refuses."""
    if x.sum() > 0:
        return x + 1
    return x - 1


def calls_item(x):
    """A size that is known only at run time."""
    return torch.ones(int(x.sum().item())) + 1


def unknown_builtin(x):
    """Something that Dynamo does not trace."""
    print(x, object())
    return x.sin()


def wrong_shapes(x):
    """The case's own mistake."""
    return x @ torch.ones(7, 5)


class Late(torch.nn.Module):
    """Fails to script: an attribute that is no tensor."""

    def __init__(self):
        super().__init__()
        self.thing = object()

    def forward(self, x):
        """Use it."""
        return x if self.thing else -x


def scripted(x):
    """Uses what TorchScript does not know."""
    negate = lambda: -x  # noqa: E731
    return negate()


def failing_backend(graph, inputs):
    """A backend that fails in a file of its own."""
    raise RuntimeError(f"cannot open {tempfile.mkdtemp()}/kernel.cpp of {object()}")


def attempts():
    """Each way to fail, by name."""
    x = torch.ones(3)
    yield "fullgraph branch", lambda: torch.compile(data_dependent, backend="eager", fullgraph=True)(x)
    yield "fullgraph print", lambda: torch.compile(unknown_builtin, backend="eager", fullgraph=True)(x)
    yield "compile shapes", lambda: torch.compile(wrong_shapes, backend="eager")(x)
    yield "backend", lambda: torch.compile(torch.sin, backend=failing_backend)(x)
    yield "backend name", lambda: torch.compile(torch.sin, backend="no_such_backend")(x)
    yield "eager shapes", lambda: wrong_shapes(x)
    yield "fx", lambda: torch.fx.symbolic_trace(data_dependent)
    yield "script attribute", lambda: torch.jit.script(Late())
    yield "script syntax", lambda: torch.jit.script(scripted)
    yield "trace type", lambda: torch.jit.trace(data_dependent, ("a",))
    yield "trace call", lambda: torch.jit.trace(wrong_shapes, (x,))
    yield "no operator", lambda: torch.ops.aten.no_such_operator
    yield "attribute", lambda: Late()(x).no_such_attribute
    yield "object", lambda: torch.sin(object())
    yield "file", lambda: torch.load(Path(tempfile.mkdtemp()) / "nothing.pt")
    if hasattr(torch, "export"):
        for strict in (True, False):
            for function in (data_dependent, calls_item):
                name = f"export {function.__name__} strict={strict}"
                yield name, lambda strict=strict, function=function: export(function, x, strict=strict)


def export(function, x, *, strict):
    """Export as the release has it."""

    class Module(torch.nn.Module):
        def forward(self, x):
            return function(x)

    options = {} if torch.__version__.startswith("2.1.") else {"strict": strict}
    return torch.export.export(Module(), (x,), **options)


def collect():
    """Return what was raised: name → (type, message)."""
    found = {}
    for name, attempt in attempts():
        try:
            attempt()
        except BaseException as error:
            found[name] = [type(error).__name__, str(error)]
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    json.dump(collect(), sys.stdout)
