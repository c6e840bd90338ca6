"""Loads a target, which is code of a user, each time anew: from a file, a package, torchvision or a pickle.

A script printed from a generated case contains this module, and needs torch alone. It therefore imports little.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
import types
import zlib
from collections import UserDict
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from recapture.torch_api.compat import seed_everything
from recapture.torch_api.libraries import release_libraries

BESIDE = "Put beside this script: "
"""The beginning of the line of a printed script that names the files which it reads and does not carry."""

LARGEST_INTEGER = 10
"""Random integer tensors have values below this, so that they can be indices of a small embedding."""

BY_NAME = (dict, UserDict)
"""Types of inputs whose items are arguments by name; what a tokenizer of Hugging Face returns is of the second."""

TORCHVISION_PARTS = ("", ".segmentation", ".detection", ".video", ".optical_flow")
"""Modules of ``torchvision.models`` whose functions make models."""


class TargetError(Exception):
    """A target or its inputs cannot be made; the message is one line for the user."""


class OwnCode:
    """A target and its inputs, as a generated case declares them.

    The target is `name` in `place`, or `packed`, an object of another process. The example's arguments are `inputs`
    (pairs of a shape and a dtype, or Python values as text), what the function `inputs_from` (a place and a name)
    returns, or `packed_inputs`. `paths` are folders of modules that the target imports; files are read relative to
    `folder`.

    `names` are the parameters that a dict of arguments is put in the order of. With `by_name`, the target is called
    with these names, because some of them cannot be given by position. With `nameless`, it is an object that is called
    like a function, and is called from one. With `gradients`, floating-point arguments require one. `form` is set where
    the numbers of a result mean nothing: see `wrapped`.
    """

    def __init__(
        self,
        *,
        place: str = "",
        name: str = "",
        packed: tuple[str, Any, Any, str] | None = None,
        inputs: Any = (),
        inputs_from: tuple[str, str] | None = None,
        packed_inputs: tuple[str, Any, Any, str] | None = None,
        paths: Any = (),
        folder: str = "",
        train: bool = False,
        names: Any = (),
        by_name: bool = False,
        nameless: bool = False,
        gradients: bool = False,
        form: str = "",
    ) -> None:
        self.place = place
        self.name = name
        self.inputs = inputs
        self.inputs_from = inputs_from
        self.packed_inputs = packed_inputs
        self.paths = paths
        self.folder = folder
        self.train = train
        self.names = names
        self.by_name = by_name
        self.nameless = nameless
        self.gradients = gradients
        self.form = form
        seed_everything()  # a module that the file itself makes has the same weights each time
        with in_folder(folder):
            self.definition: Any = find(place, name, paths) if packed is None else unpacked(*packed)

    def load(self) -> Any:
        """Make the target: a module in training or evaluation mode, or the function."""
        import torch

        with in_folder(self.folder):
            target = build(self.definition, self.name)
        if isinstance(target, torch.nn.Module):
            target.train(self.train)
        if self.by_name or self.form or self.nameless:
            parameters = self.names if self.by_name else len(self.example())
            called = wrapped(target, parameters, self.by_name, self.form)
            if not self.nameless and not isinstance(target, torch.nn.Module):
                called.__name__ = attribute_of(target, "__name__", "call")
            return called
        return target

    def example(self) -> tuple[Any, ...]:
        """Make the arguments that a compiler captures with."""
        return self.arguments(self.given())

    def given(self) -> Any:
        """Make the example as the user gives it: a tuple, one value, or a dict of names."""
        with in_folder(self.folder):
            if self.packed_inputs is not None:
                return unpacked(*self.packed_inputs)
            if self.inputs_from is not None:
                return find(*self.inputs_from, self.paths)()
        return tuple(ast.literal_eval(item) if isinstance(item, str) else tensor_from(*item) for item in self.inputs)

    def arguments(self, inputs: Any) -> tuple[Any, ...]:
        """Return what the user gave as a tuple of arguments: a tuple, one value, a dict, or a function of these."""
        if callable(inputs) and not hasattr(inputs, "dtype"):  # a function that makes them
            inputs = inputs()
        if isinstance(inputs, BY_NAME):
            args = self._in_order(inputs)
        else:
            args = tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,)
        return requiring_gradients(args) if self.gradients else args

    def _in_order(self, inputs: Mapping[str, Any]) -> tuple[Any, ...]:
        ordered = [name for name in self.names if name in inputs]
        if len(ordered) < len(inputs):
            unknown = next(name for name in inputs if name not in ordered)
            raise TargetError(f"the inputs do not fit: {unknown!r} is not in the example")
        if ordered != list(self.names[: len(ordered)]) or (self.by_name and len(ordered) < len(self.names)):
            raise TargetError(f"the inputs do not fit: of {', '.join(self.names)}, only {', '.join(ordered)} are given")
        return tuple(inputs[name] for name in ordered)


@contextlib.contextmanager
def in_folder(folder: str) -> Iterator[None]:
    """Work in a folder of the user, so that files beside the code are found; stay where we are without one."""
    before = os.getcwd()  # noqa: PTH109 - few imports: this is part of scripts
    if os.path.isdir(folder):  # noqa: PTH112 - a script may run on a machine that has no such folder
        os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


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
        raise TargetError(f"{place} cannot be imported: {_why(error, place)}") from None
    value: Any = module
    for part in name.split("."):
        if not hasattr(value, part):
            known = vars(value) if hasattr(value, "__dict__") else {}
            near = _similar(part, [other for other, of_it in known.items() if not isinstance(of_it, ModuleType)])
            raise TargetError(f"{place} has no {name!r}{near}")
        value = getattr(value, part)
    return value


def _why(error: BaseException, place: str) -> str:
    """Say in one line what importing a file raised, and what to do about it."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    if _is_absent(error, place):
        return f"ModuleNotFoundError: the module {getattr(error, 'name', '')!r} is not installed"
    if isinstance(error, SystemExit):
        how = f"with {error.code[:200]!r}" if isinstance(error.code, str) else f"exit status {error.code or 0}"
        return (
            f"it ends the program when it is imported ({how}): put what a script does, such as "
            "reading its arguments, below `if __name__ == '__main__':`"
        )
    return f"{type(error).__name__}: {text}"


def _is_absent(error: BaseException, place: str) -> bool:
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return False
    return place != error.name and not place.startswith(f"{error.name}.")


def _similar(name: str, known: Any) -> str:
    import difflib

    near = difflib.get_close_matches(name, [other for other in known if not other.startswith("_")], n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else ""


def _executed(path: str) -> Any:
    """Execute a file as a new module, with new globals; modules of its folder can be imported."""
    path = os.path.abspath(path)  # noqa: PTH100 - few imports: this is part of scripts
    folder, file = os.path.split(path)
    if folder not in sys.path:
        sys.path.append(folder)
    name = _name_in_package(path)
    if not name:
        name = file[: -len(".py")]
        # A file named like a module that is imported, as `types.py`, must not replace it.
        taken = name in sys.modules and getattr(sys.modules[name], "__file__", None) != path
        if taken or not name.isidentifier() or name in sys.stdlib_module_names:
            name = f"own_code_{zlib.crc32(path.encode()):08x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    if name in sys.modules:
        release_libraries(vars(sys.modules[name]))  # this execution defines the file's operators again
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _name_in_package(path: str) -> str:
    """Return the name under which a file can import its neighbours with ``from .other import …``; empty without such.

    The folder becomes a package with a name of its own, so that no installed package of the same name is in the way.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - few imports: this is part of scripts
        levels = [len(dots) for dots in re.findall(rb"^\s*from\s+(\.+)", file.read(), re.MULTILINE)]
    if not levels:
        return ""
    folder, parts = os.path.dirname(path), [os.path.basename(path)[: -len(".py")]]  # noqa: PTH119, PTH120
    while len(parts) < max(levels) or os.path.isfile(os.path.join(folder, os.pardir, "__init__.py")):  # noqa: PTH113, PTH118
        folder, last = os.path.split(folder)
        parts.insert(0, last)
    root = f"own_code_{zlib.crc32(folder.encode()):08x}"
    if root not in sys.modules:
        package = types.ModuleType(root)
        vars(package).update(__path__=[folder], __package__=root)
        sys.modules[root] = package
        first = os.path.join(folder, "__init__.py")  # noqa: PTH118
        if os.path.isfile(first):  # noqa: PTH113
            package.__file__ = first
            with open(first, "rb") as file:  # noqa: PTH123
                exec(compile(file.read(), first, "exec"), vars(package))  # noqa: S102 - the user's own package
    names = [root, *parts]
    for count in range(2, len(names)):
        importlib.import_module(".".join(names[:count]))
    return ".".join(names)


def _torchvision(name: str) -> Any:
    try:
        parts = [importlib.import_module(f"torchvision.models{part}") for part in TORCHVISION_PARTS]
    except ImportError as error:
        raise TargetError(f"torchvision cannot be imported: {error}") from None
    known = {
        key: value
        for part in parts
        for key, value in vars(part).items()
        if key.islower() and not key.startswith("_") and inspect.isfunction(value)
    }
    if name not in known:
        raise TargetError(f"torchvision has no model {name!r}{_similar(name, known)}")
    make = known[name]
    without = {"weights": None, "weights_backbone": None}  # random weights, so that nothing is downloaded
    parameters = inspect.signature(make).parameters
    options = {key: value for key, value in without.items() if key in parameters}

    def factory() -> Any:
        return make(**options)

    return factory


def build(definition: Any, name: str) -> Any:
    """Return what is checked: a function or module, or what a class or a factory without arguments makes.

    Raises TargetError for a class or factory that needs arguments, and for anything that cannot be called.
    """
    import torch

    _refuse_compiled(definition, name)
    if inspect.ismethod(definition) and definition.__name__ == "forward":
        definition = definition.__self__  # compilers take the module in its place
    if isinstance(definition, torch.nn.Module):
        return definition
    if inspect.isclass(definition) and not issubclass(definition, torch.nn.Module):
        raise TargetError(f"{name} is a class, but not a torch.nn.Module")
    if not callable(definition):
        raise TargetError(
            f"{name} is an object of type {type(definition).__name__}: a target is a function or a torch.nn.Module"
        )
    if inspect.iscoroutinefunction(getattr(definition, "forward", definition)):
        raise TargetError(f"{name} is an async function: write a function that returns its result")
    if inspect.isclass(definition):
        needed = _needed(definition.__init__)[1:]
        if needed:
            raise TargetError(
                f"{name} needs arguments ({', '.join(needed)}): write a function without arguments that makes it"
            )
        return definition()
    if _needed(definition) or _parameters(definition) is None:
        return definition
    try:
        result = definition()
    except Exception:
        if _parameters(definition):  # each has a default, and yet it needs arguments: it makes nothing
            return definition
        raise
    _refuse_compiled(result, name)
    if isinstance(result, (tuple, list)) and any(isinstance(part, torch.nn.Module) for part in result):
        raise TargetError(
            f"{name} returns a {type(result).__name__} with a module: it has to return the module alone; "
            "--inputs names a function that returns the arguments"
        )
    return result if isinstance(result, torch.nn.Module) or inspect.isfunction(result) else definition


def attribute_of(value: Any, name: str, default: Any = None) -> Any:
    """Return an attribute of a user's object, whose class may raise any exception where it has none of that name."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def _is_exported_module(definition: Any) -> bool:
    """Whether this is the module of an exported program: its own `train` and `eval` say that they are not supported."""
    return type(definition).__name__ == "GraphModule" and {"train", "eval"} <= vars(definition).keys()


def _refuse_compiled(definition: Any, name: str) -> None:
    """Raise TargetError for what a compiler made: a check compares compilers with the code that they are given."""
    import torch

    of_dynamo = attribute_of(definition, "_torchdynamo_orig_callable")
    if isinstance(definition, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        how = "TorchScript"
    elif of_dynamo is not None or type(definition).__name__ == "OptimizedModule":
        how = "torch.compile"
    elif type(definition).__name__ == "ExportedProgram" or _is_exported_module(definition):
        how = "torch.export"
    else:
        return
    raise TargetError(f"{name} is a result of {how}: name the function or torch.nn.Module that it was made from")


def _parameters(function: Any) -> list[inspect.Parameter] | None:
    """Return what a function takes; None for one that does not say it."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None


def _needed(function: Any) -> list[str]:
    """Return the parameters without a default."""
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = (parameter for parameter in _parameters(function) or () if parameter.default is parameter.empty)
    return [parameter.name for parameter in required if parameter.kind not in variadic]


def as_module(function: Any) -> Any:
    """Return a module that calls a function, for what times modules alone."""
    import torch

    if isinstance(function, torch.nn.Module):
        return function

    class Function(torch.nn.Module):  # type: ignore[misc]
        def forward(self, *args: Any) -> Any:
            return function(*args)

    return Function()


def unpacked(text: str, sources: Any = (), paths: Any = (), python: str = "") -> Any:
    """Return an object of another process: base64 of what `torch.save` wrote, or ``@`` and the path of such a file.

    `sources` are pairs of a file's name and its text: the code of a notebook or prompt, which is in no file. `paths`
    are folders of modules that the object needs. `python` is set where it holds compiled code, which only that release
    of Python runs. Raises TargetError in another.
    """
    import io
    import linecache
    import pathlib

    import torch

    if python not in ("", "{}.{}".format(*sys.version_info)):
        raise TargetError(f"it holds code that Python {python} compiled: run it with that Python")
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


def requiring_gradients(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Make the floating-point tensors among arguments require gradients, in place: an aliased one stays aliased."""
    import torch

    for arg in args:
        if isinstance(arg, torch.Tensor) and (arg.is_floating_point() or arg.is_complex()) and arg.is_leaf:
            arg.requires_grad_()
        elif isinstance(arg, (list, tuple)):
            requiring_gradients(tuple(arg))
        elif isinstance(arg, dict):
            requiring_gradients(tuple(arg.values()))
    return args


def order_of_names(target: Any, inputs: Mapping[str, Any]) -> tuple[tuple[str, ...], bool]:
    """Return the parameters that a dict of arguments is for, in order, and whether they must be given by name.

    Raises TargetError if the target does not take these names.
    """
    function = getattr(target, "forward", target)
    try:
        parameters = inspect.signature(function).parameters
        inspect.signature(function).bind(**inputs)
    except (TypeError, ValueError) as error:
        raise TargetError(f"the inputs do not fit: {error}") from None
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [name for name, parameter in parameters.items() if parameter.kind in by_position]
    present = [name for name in positional if name in inputs]
    if len(present) == len(inputs) and present == positional[: len(present)]:
        return tuple(positional), False
    in_order = [name for name in parameters if name in inputs]
    return (*in_order, *(name for name in inputs if name not in in_order)), True


def wrapped(target: Any, parameters: Any, by_name: bool, form: str) -> Any:
    """Return a function or module that calls the target, with its arguments by name, or for the form of its result.

    `parameters` are names, or their number. With the form ``tensor`` the result's numbers are replaced by zeros, and
    with a number those of a tuple of that many tensors, so that shapes and dtypes alone are left.
    """
    import linecache

    import torch

    names = [f"argument_{number}" for number in range(parameters)] if isinstance(parameters, int) else list(parameters)
    is_module = isinstance(target, torch.nn.Module)
    arguments = ", ".join(f"{name}={name}" if by_name else name for name in names)
    call = f"{'self.' if is_module else ''}target({arguments})"
    lines = [f"def {'forward' if is_module else 'call'}({', '.join([*(['self'] if is_module else []), *names])}):"]
    if form == "tensor":
        lines += [f"    return torch.zeros_like({call})"]
    elif form:
        zeros = "".join(f"torch.zeros_like(result[{number}]), " for number in range(int(form)))
        lines += [f"    result = {call}", f"    return ({zeros})"]
    else:
        lines += [f"    return {call}"]
    text = "\n".join(lines) + "\n"
    place = f"<call of the target {zlib.crc32(text.encode()):08x}>"
    linecache.cache[place] = (len(text), None, text.splitlines(keepends=True), place)  # TorchScript reads the source
    names_inside: dict[str, Any] = {"__name__": __name__, "torch": torch, "target": target}
    exec(compile(text, place, "exec"), names_inside)  # noqa: S102 - the text above
    if not is_module:
        return names_inside["call"]
    kind = type(type(target).__name__, (torch.nn.Module,), {"forward": names_inside["forward"]})
    module = kind()
    module.target = target
    return module.train(target.training)
