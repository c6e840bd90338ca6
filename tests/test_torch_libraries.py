"""A file that registers operators can be executed again in one process; operators of modules that it imports stay."""

import gc
from types import SimpleNamespace

import pytest
import torch

from recapture.cases.own_code import find
from recapture.torch_api.libraries import release_libraries

LIBRARY = """
import torch

lib = torch.library.Library("planted_library", "DEF")
lib.define("scaled(Tensor x) -> Tensor")


@torch.library.impl("planted_library::scaled", "CompositeExplicitAutograd", lib=lib)
def scaled(x):
    return x * SCALE


def use(x):
    return torch.ops.planted_library.scaled(x)
"""

FUNCTIONS = """
import planted_library_helper
import torch

torch.library.define("planted_functions::scaled", "(Tensor x) -> Tensor")


@torch.library.impl("planted_functions::scaled", "default")
def scaled(x):
    return x * SCALE


@torch.library.register_fake("planted_functions::scaled")
def _(x):
    return torch.empty_like(x)


def use(x):
    # Operators of a module that is not executed again: planted_helper::same, and one in this file's namespace.
    return torch.ops.planted_functions.scaled(torch.ops.planted_functions.zero(x) + torch.ops.planted_helper.same(x))
"""

OBJECT = """
import torch


@torch.library.custom_op("planted_object::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


@scaled.register_fake
def _(x):
    return torch.empty_like(x)


def use(x):
    return scaled(x)
"""

HELPER = """
import torch

torch.library.define("planted_helper::same", "(Tensor x) -> Tensor")


@torch.library.impl("planted_helper::same", "default")
def same(x):
    return x.clone()


torch.library.define("planted_functions::zero", "(Tensor x) -> Tensor")


@torch.library.impl("planted_functions::zero", "default")
def zero(x):
    return torch.zeros_like(x)
"""


@pytest.mark.parametrize("text", [LIBRARY, FUNCTIONS, OBJECT], ids=["Library", "define", "custom_op"])
def test_a_file_that_defines_operators_is_executed_twice(tmp_path, text):
    (tmp_path / "planted_library_helper.py").write_text(HELPER)
    path = tmp_path / "planted_operators.py"
    for scale in (2, 30):  # a file of another size, because bytecode is kept for a size and a second
        path.write_text(text.replace("SCALE", f"{scale}.00"))
        assert find(str(path), "use")(torch.ones(2)).tolist() == [scale, scale]


@pytest.mark.parametrize("file", [None, "none.py", "."])
def test_a_module_without_a_readable_file_has_nothing_to_release(tmp_path, file):
    release_libraries({} if file is None else {"__file__": str(tmp_path / file)})


class Library21:
    """A library as 2.1 has it: nothing but the end of the object undoes it."""

    kind, ns = "DEF", "planted_old"

    def __init__(self):
        self.m = object()
        self._op_impls = {"planted_old/scaled/CPU"}


class Library20(Library21):
    """A library as 2.0 has it: the end of the object undoes it, and fails if it was undone before."""

    def __del__(self):
        for key in self._op_impls:
            torch.library._impls.remove(key)
        del self.m


class Library22(Library21):
    """A library as 2.2 has it: `_destroy` leaves the names to the end of the object."""

    def __init__(self):
        super().__init__()
        self._op_defs = {"planted_old::scaled"}

    def _destroy(self):
        self.m = None


@pytest.mark.parametrize("kind", [Library20, Library21, Library22])
def test_libraries_of_old_releases_are_undone_while_something_holds_them(kind, monkeypatch):
    looked_up = SimpleNamespace(scaled="an operator", kept="an operator")
    monkeypatch.setattr(torch.library, "Library", kind)
    monkeypatch.setattr(torch.library, "_impls", {"planted_old/scaled/CPU", "another/scaled/CPU"})
    monkeypatch.setattr(torch.library, "_defs", {"planted_old::scaled", "another::scaled"})
    monkeypatch.setitem(vars(torch.ops), "planted_old", looked_up)
    held = kind()
    release_libraries({"lib": held})
    assert torch.library._impls == {"another/scaled/CPU"}
    assert getattr(held, "m", None) is None
    assert not held._op_impls, "the end of the object undoes nothing that is registered later"
    if kind is Library22:
        assert not held._op_defs, "nor does it forget what is looked up later"
        assert torch.library._defs == {"another::scaled"}
        assert vars(looked_up) == {"kept": "an operator"}
    else:
        assert "planted_old" not in vars(torch.ops)
    release_libraries({"lib": held})  # as for a file that failed half-way


def test_an_implementation_for_operators_of_torch_leaves_what_was_looked_up(monkeypatch):
    class Implementation(Library21):
        kind, ns = "IMPL", "aten"

    monkeypatch.setattr(torch.library, "Library", Implementation)
    before = torch.ops.aten
    release_libraries({"lib": Implementation()})
    assert vars(torch.ops)["aten"] is before


FILE = """
import torch
LIBRARY = torch.library.Library("planted_again", "DEF")
LIBRARY.define("same(Tensor x) -> Tensor")
LIBRARY.impl("same", lambda x: x.clone(), "CompositeImplicitAutograd")
"""


def test_the_end_of_an_earlier_execution_leaves_the_operators_of_the_next_one():
    """From torch 2.14 on, the end of a library forgets its operators, even if another library has defined them since."""
    first, second = {}, {}
    exec(FILE, first)
    release_libraries(first)
    exec(FILE, second)
    try:
        operator = torch.ops.planted_again.same
        del first["LIBRARY"]
        gc.collect()
        assert torch.ops.planted_again.same is operator
    finally:
        release_libraries(second)
