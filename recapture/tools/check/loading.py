"""Loads a target, which is code of a user, each time anew: from a file, a package, torchvision or a pickle.

A generated case contains the source of this module, so that a script printed from it needs torch alone. It therefore
imports nothing from this project but what the case contains as well.
"""

from __future__ import annotations

import base64
import importlib
import importlib.util
import inspect
import os
import sys
import zlib
from typing import Any

from recapture.torch_api.libraries import release_libraries

LARGEST_INTEGER = 10
"""Random integer tensors have values below this, so that they can be indices of a small embedding."""


TORCHVISION_PARTS = ("", ".segmentation", ".detection", ".video", ".optical_flow")
"""Modules of ``torchvision.models`` whose functions make models."""


class TargetError(Exception):
    """A target or its inputs cannot be made; the message is one line for the user."""


def find(place: str, name: str, paths: Any = ()) -> Any:
    """Return the object `name` of a Python file, which is executed anew, or of a package.

    `place` is ``torchvision``, the path of a file, or the name of a module; `paths` are folders of other modules.
    Raises TargetError if there is none.
    """
    sys.path.extend(path for path in paths if path not in sys.path)
    if place == "torchvision":
        return _torchvision(name)
    is_file = place.endswith(".py")
    try:
        module = _executed(place) if is_file else importlib.import_module(place)
    except BaseException as error:  # a user's file may raise anything on import
        text = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
        what = f"the module {getattr(error, 'name', '')!r} is not installed" if _is_absent(error, place) else text
        raise TargetError(f"{place} cannot be imported: {type(error).__name__}: {what}") from None
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            near = _similar(part, vars(found) if hasattr(found, "__dict__") else ())
            raise TargetError(f"{place} has no {name!r}{near}")
        found = getattr(found, part)
    return found


def _is_absent(error: BaseException, place: str) -> bool:
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return False
    return place != error.name and not place.startswith(f"{error.name}.")


def _similar(name: str, known: Any) -> str:
    import difflib

    near = difflib.get_close_matches(name, [one for one in known if not one.startswith("_")], n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _executed(path: str) -> Any:
    """Execute a file as a new module, with new globals; modules of its folder can be imported."""
    path = os.path.abspath(path)  # noqa: PTH100 - few imports: this is part of scripts
    folder, file = os.path.split(path)
    if folder not in sys.path:
        sys.path.append(folder)
    name = file[: -len(".py")]
    taken = name in sys.modules and getattr(sys.modules[name], "__file__", None) != path
    if taken or not name.isidentifier() or name in sys.stdlib_module_names:
        name = f"own_code_{zlib.crc32(path.encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    if name in sys.modules:
        release_libraries(vars(sys.modules[name]))  # this execution defines the file's operators again
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _torchvision(name: str) -> Any:
    try:
        parts = [importlib.import_module(f"torchvision.models{part}") for part in TORCHVISION_PARTS]
    except ImportError as error:
        raise TargetError(f"torchvision cannot be imported: {error}") from None
    known = {
        key: one
        for part in parts
        for key, one in vars(part).items()
        if key.islower() and not key.startswith("_") and inspect.isfunction(one)
    }
    if name not in known:
        raise TargetError(f"torchvision has no model {name!r}{_similar(name, known)}")
    make = known[name]
    without = {"weights": None, "weights_backbone": None}  # random weights, so that nothing is downloaded
    taken = inspect.signature(make).parameters
    given = {key: value for key, value in without.items() if key in taken}

    def factory() -> Any:
        return make(**given)

    return factory


def build(found: Any, name: str) -> Any:
    """Return what is checked: a function, or a module from a class, an instance or a factory without arguments.

    Raises TargetError for a class or factory that needs arguments, and for anything that cannot be called.
    """
    import torch

    if isinstance(found, torch.nn.Module):
        return found
    if inspect.isclass(found) and not issubclass(found, torch.nn.Module):
        raise TargetError(f"{name} is a class, but no torch.nn.Module")
    if not callable(found):
        raise TargetError(f"{name} is no function and no torch.nn.Module but {type(found).__name__}")
    if inspect.iscoroutinefunction(getattr(found, "forward", found)):
        raise TargetError(f"{name} is an async function: write a function that returns its result")
    if inspect.isclass(found):
        needed = _needed(found.__init__)[1:]
        if needed:
            raise TargetError(
                f"{name} needs arguments ({', '.join(needed)}): write a function without arguments that makes it"
            )
        return found()
    if _needed(found) or not _says_what_it_takes(found):
        return found
    made = found()
    return made if isinstance(made, torch.nn.Module) else found


def _says_what_it_takes(function: Any) -> bool:
    try:
        inspect.signature(function)
    except (TypeError, ValueError):
        return False
    return True


def _needed(function: Any) -> list[str]:
    """Return the parameters without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    return [one.name for one in parameters if one.default is one.empty and one.kind not in (2, 4)]


def made_for(built: Any, *, train: bool) -> Any:
    """Return a module in training or evaluation mode; a function as it is."""
    import torch

    return built.train(train) if isinstance(built, torch.nn.Module) else built


def as_module(function: Any) -> Any:
    """Return a module that calls a function, for what times modules alone."""
    import torch

    if isinstance(function, torch.nn.Module):
        return function

    class Function(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Function()


def unpacked(text: str, sources: Any = (), paths: Any = ()) -> Any:
    """Return an object of another process: base64 of what `torch.save` wrote, or ``@`` and the path of such a file.

    `sources` are pairs of a file's name and its text: the code of a notebook or prompt, which is in no file. `paths`
    are folders of modules that the object needs.
    """
    import io
    import linecache
    import pathlib

    import torch

    for name, source in sources:
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    sys.path.extend(path for path in paths if path not in sys.path)
    data = pathlib.Path(text[1:]).read_bytes() if text.startswith("@") else base64.b64decode(text)
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)


def tensor_from(shape: tuple[int, ...], dtype: str) -> Any:
    """Return a random tensor: normal, or integers below LARGEST_INTEGER, or both truth values."""
    import torch

    kind = getattr(torch, dtype)
    if dtype == "bool":
        return torch.rand(shape) > 0.5
    if kind.is_floating_point or kind.is_complex:
        return torch.randn(shape, dtype=kind if kind.is_complex else torch.float32).to(kind)
    return torch.randint(0, LARGEST_INTEGER, shape, dtype=kind)


def arguments_from(made: Any, target: Any) -> tuple[Any, ...]:
    """Return the arguments that a user gave: a tuple, one value, a dict of names, or a function of these.

    Names become positions, with the defaults of the parameters between. Raises TargetError if that cannot be done.
    """
    if callable(made) and not hasattr(made, "dtype"):  # a function that makes them
        made = made()
    if not isinstance(made, dict):
        return tuple(made) if isinstance(made, (tuple, list)) else (made,)
    function = getattr(target, "forward", target)
    try:
        bound = inspect.signature(function).bind(**made)
    except (TypeError, ValueError) as error:
        raise TargetError(f"the inputs do not fit: {error}") from None
    bound.apply_defaults()
    last = max((number for number, name in enumerate(bound.arguments) if name in made), default=-1)
    named = [one.name for one in inspect.signature(function).parameters.values() if one.kind == 3 and one.name in made]
    if named:
        raise TargetError(f"{named[0]!r} can only be given by name: write a module or function that gives it")
    return tuple(list(bound.arguments.values())[: last + 1])
