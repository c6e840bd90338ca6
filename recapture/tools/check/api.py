"""Checks code from Python: ``recapture.check(function, example)``. The work runs in other processes."""

from __future__ import annotations

import base64
import inspect
import io
import linecache
import os
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recapture.base.errors import UsageError, did_you_mean
from recapture.base.exceptions import qualified, safe_text
from recapture.base.option_fields import known_device
from recapture.base.text import one_line
from recapture.cases.own_code import BESIDE
from recapture.cases.target import parse_input, parse_inputs_place, parse_target
from recapture.images.requirements import Requirements
from recapture.machine.hardware import cores
from recapture.machine.pins import find_releases
from recapture.tools.check.across import REGRESSION, AcrossReport, CheckRuns, failures
from recapture.tools.check.answers import FAIL_ON, CheckReport, CheckRow, failed
from recapture.tools.check.report import (
    across_html,
    across_text,
    check_html,
    check_line,
    closing_lines,
    row_lines,
)
from recapture.tools.check.request import (
    MOST_INPUTS,
    CheckOptions,
    CheckRequest,
    Pickled,
    derived_dtype,
)
from recapture.tools.check.session import CheckEvents, run_check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_HEADER = 12
"""Lines at the beginning of a script among which is the one that names what it does not carry."""

LARGEST_TEXT = 1 << 20
"""Bytes of the largest object that is written into the generated case; others get a file beside it."""


class CheckFailedError(AssertionError):
    """A check found what `CheckResult.raise_if` was asked to look for; the message has a line for each compiler."""


class CheckResult:
    """The result of a check: `report` has a row for each compiler. A notebook shows it as a table."""

    def __init__(self, report: CheckReport, scripts: Mapping[str, str]) -> None:
        self.report = report
        self._scripts = scripts

    @property
    def rows(self) -> tuple[CheckRow, ...]:
        """A row for each compiler."""
        return self.report.rows

    def __getitem__(self, compiler: str) -> CheckRow:
        for row in self.report.rows:
            if row.compiler == compiler:
                return row
        known = [row.compiler for row in self.report.rows]
        raise KeyError(f"{compiler!r} was not checked{did_you_mean(compiler, known)}")

    def raise_if(self, *fail_on: str) -> CheckResult:
        """Raise CheckFailedError if a compiler is ``silently_wrong``, ``failing``, ``breaks``, or ``any`` of these.

        With ``accepts_refused``, also if one returns a value where eager raises. Returns the result itself otherwise.
        Raises UsageError for another word.
        """
        _check_words(fail_on, FAIL_ON)
        rows = failed(self.report, fail_on or ("silently_wrong",))
        if rows:
            lines = [line for row in rows for line in row_lines(row)]
            raise CheckFailedError("\n".join([self.report.sentence, *lines]))
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data, as ``recapture check --json`` prints it."""
        facts: dict[str, Any] = msgspec.to_builtins(self.report)
        return {"sentence": self.report.sentence, **facts}

    def repro(self, compiler: str) -> str:
        """Return the script that shows one compiler's difference from eager; it carries the code, and needs torch.

        Warns of files that it does not carry, such as weights: its first lines name them.
        """
        script = self._scripts[self[compiler].compiler]
        for line in script.splitlines()[:MOST_HEADER]:
            if line.startswith(BESIDE):
                warnings.warn(f"the script reads files that it does not carry. {line}", stacklevel=2)
        return script

    def _repr_html_(self) -> str:
        return check_html(self.report)

    def __repr__(self) -> str:
        return "\n".join([*map(check_line, self.report.rows), "", *closing_lines(self.report)])


def check(
    target: Any,
    example: Any = None,
    *,
    held_out: Sequence[Any] | Mapping[str, Any] = (),
    compilers: Sequence[str] = (),
    device: str = "cpu",
    train: bool = False,
    derive: bool = True,
    most_inputs: int = MOST_INPUTS,
    nonfinite: bool = False,
    dtypes: Sequence[str] = (),
    timeout: float = 600.0,
    jobs: int | None = None,
) -> CheckResult:
    """Compare compilers with eager on a function or module, also on inputs that the compiler has not seen.

    `target` is a function, an ``nn.Module``, a class of one, or text such as ``my_model.py:Net``. `example` is the
    tuple of its arguments, one argument, a dict of arguments by name, a shape as text (``"8x3x224x224"``), or a
    function that makes the arguments. `held_out` are further arguments, in a list or by name; other batch sizes,
    values, layouts and Python values are derived unless `derive` is False, at most `most_inputs`. `compilers` are names
    as ``recapture list --compilers`` prints; by default the usual ones. With `train`, gradients and updated parameters
    of three steps are compared. `timeout` is in seconds for each compiler.

    Everything runs in isolated processes: the caller's torch is not touched. Raises UsageError, in one line, for a
    target or an example that cannot be used.
    """
    if isinstance(compilers, str):
        raise UsageError(f"compilers is a list of names, not the text {compilers!r}")
    with tempfile.TemporaryDirectory(prefix="recapture-check-") as name:
        folder = Path(name)
        request = msgspec.structs.replace(
            _request(target, example, held_out, folder),
            derive=derive,
            most_inputs=most_inputs,
            train=train,
            nonfinite=nonfinite,
            dtypes=tuple(map(derived_dtype, dtypes)),
            device=known_device(device),
        )
        options = CheckOptions(compilers=tuple(compilers), device=device, timeout=timeout, jobs=jobs or cores())
        outcome = run_check(request, options, CheckEvents(scripts=True), folder=folder)
        return CheckResult(outcome.report, outcome.scripts)


class AcrossResult:
    """The result of a check on several releases: `report` has an answer for each. A notebook shows it as a table."""

    def __init__(self, report: AcrossReport) -> None:
        self.report = report

    def raise_if(self, *fail_on: str) -> AcrossResult:
        """Raise CheckFailedError as `CheckResult.raise_if` does, for any release, and for ``regression``.

        A regression is a compiler that is worse on the newest release than on the oldest. A release that was not
        checked fails too. Returns the result itself otherwise.
        """
        _check_words(fail_on, (*FAIL_ON, REGRESSION))
        lines = failures(self.report, fail_on or (REGRESSION,))
        lines += [f"{gap.release}: not checked: {gap.gap}" for gap in self.report.gaps]
        if lines:
            raise CheckFailedError("\n".join([self.report.headline, *lines]))
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data, as ``recapture check --across … --json`` prints it."""
        return self.report.to_dict()

    def _repr_html_(self) -> str:
        return across_html(self.report)

    def __repr__(self) -> str:
        return across_text(self.report)


def check_across(
    target: Any,
    example: str = "",
    *,
    releases: Sequence[str],
    requirements: Sequence[str | Path] = (),
    compilers: Sequence[str] = (),
    device: str = "cpu",
    train: bool = False,
    timeout: float = 600.0,
    again: bool = False,
    show: Callable[[str], object] = lambda _: None,
) -> AcrossResult:
    """Compare compilers with eager on several releases of torch, each in its own environment.

    `target` is text such as ``my_model.py:Net``, or a function or class at the top of a file. `example` is text:
    shapes such as ``"8x4"`` or ``"8x4, 8:int64"``, or ``my_model.py:inputs``, a function that makes them. Objects of
    this process cannot be sent to another release of torch. `releases` are such as ``["2.6.0", "2.11.0"]``,
    `requirements` the files that say what the code imports. `timeout` is in seconds for each compiler. `show` receives
    each line of progress.

    The environments are made with uv, of 5 to 7 GB each, and kept; so are answers, unless `again`. Raises UsageError,
    in one line, for what cannot be used.
    """
    place = parse_target(target) if isinstance(target, str) else place_of(target)
    if place is None or not isinstance(example, str):
        raise UsageError("on other releases, the target is in a file and the example is text, such as '8x4'")
    options: list[str] = []
    fields: dict[str, Any] = {"place": place[0], "name": place[1]}
    if ":" in example and example.partition(":")[0].endswith(".py"):
        fields["inputs_from"] = parse_inputs_place(example)
        options += ["--inputs", ":".join(fields["inputs_from"])]
    elif example:
        inputs = [text.strip() for text in example.split(",")]
        fields["inputs"] = tuple(map(parse_input, inputs))
        options += [word for text in inputs for word in ("--input", text)]
    options += [word for name in compilers for word in ("--compiler", name)]
    options += ["--train"] if train else []
    options += ["--device", known_device(device), "--timeout", str(timeout)]
    request = CheckRequest(**fields)
    runs = CheckRuns(
        target=request.title,
        words=(*options, ":".join(place)),
        places=request.places,
        device=device,
        requirements=Requirements.read([Path(file) for file in requirements]),
        again=again,
        show=show,
    )
    return AcrossResult(runs.run([image for release in releases for image in find_releases(release)]))


def _check_words(fail_on: Sequence[str], known: Sequence[str]) -> None:
    for name in fail_on:
        if name not in known:
            raise UsageError(f"raise_if: unknown {name!r}; known: {', '.join(known)}{did_you_mean(name, known)}")


def _request(target: Any, example: Any, held_out: Sequence[Any] | Mapping[str, Any], folder: Path) -> CheckRequest:
    """Return the request of objects of this process."""
    if not isinstance(held_out, Mapping):
        held_out = {f"held_out[{number}]": inputs for number, inputs in enumerate(held_out)}
    packed = {str(name): pack(inputs, folder) for name, inputs in held_out.items()}
    fields: dict[str, Any] = {"paths": search_path(), "held_out": packed, "folder": str(Path.cwd())}
    if isinstance(target, str):
        fields["place"], fields["name"] = parse_target(target)
    elif (place := place_of(target)) is not None:
        fields["place"], fields["name"] = place
    else:
        name = getattr(target, "__name__", None) or type(target).__name__
        fields |= {"pickled": pack(target, folder), "name": str(name)}
    if isinstance(example, str):
        fields["inputs"] = tuple(parse_input(text.strip()) for text in example.split(","))
    elif example is not None:
        fields["pickled_example"] = pack(example, folder)
    return CheckRequest(**fields)


# --- objects for the processes that check them -----------------------------------------------------------------------


def place_of(target: Any) -> tuple[str, str] | None:
    """Return the file and the name of a function or class at the top level of a module that is in no package.

    Such a file can be executed anew for every run. None for everything else: it is pickled.
    """
    module = sys.modules.get(getattr(target, "__module__", None) or "")
    name = getattr(target, "__qualname__", "")
    file = getattr(module, "__file__", None)
    if module is None or module.__name__ == "__main__" or "." in module.__name__ or not file or not name.isidentifier():
        return None
    if getattr(module, name, None) is not target or Path(file).suffix != ".py" or Path(file).name == "__init__.py":
        return None
    return str(Path(file).resolve()), name


def pack(value: Any, folder: Path) -> Pickled:
    """Return an object as text; a large one is written to a file in `folder`. The object is not changed.

    Raises UsageError if it cannot be pickled.
    """
    import cloudpickle
    import torch

    data = io.BytesIO()
    try:
        torch.save(value, data, pickle_module=cloudpickle)
    except Exception as error:  # an object may raise anything when it is pickled
        why = one_line(f"{qualified(type(error))}: {safe_text(error)}")
        raise UsageError(f"{_name_of(value)} cannot be sent to another process: {why}") from None
    content = data.getvalue()
    # What a plain import finds again is pickled without cloudpickle, and holds no compiled code.
    python = "{}.{}".format(*sys.version_info) if cloudpickle.__name__.encode() in content else ""
    paths = search_path()
    sources = tuple(_sources(value))
    if len(content) > LARGEST_TEXT:
        number = len(list(folder.glob("*.packed")))
        file = folder / f"{number}.packed"
        file.write_bytes(content)
        return Pickled(f"@{file}", sources, paths, python)
    return Pickled(base64.b64encode(content).decode(), sources, paths, python)


def search_path() -> tuple[str, ...]:
    """Return the user's folders in which this process finds modules; another process may have others.

    Those of this Python and of its packages are left out: every process has them, and a script may be passed on.
    """
    folders = (os.path.abspath(path) for path in sys.path if isinstance(path, str))  # noqa: PTH100 - "" is the cwd
    own = {os.path.abspath(path) for path in sysconfig.get_paths().values()}  # noqa: PTH100
    parts = ("site-packages", "dist-packages", "lib-dynload")
    return tuple(
        folder
        for folder in folders
        if folder not in own and not set(parts) & set(Path(folder).parts) and not folder.endswith(".zip")
    )


def _name_of(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or type(value).__name__
    return one_line(str(name))[:100]


def _sources(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and text of what an object's code was compiled from, if no module of that name can be imported.

    It is a notebook's cell, or the program itself, which a script has to carry.
    """
    seen: set[str] = set()
    is_object = hasattr(value, "modules") and not inspect.isclass(value)
    owners = [type(module) for module in value.modules()] if is_object else [value]
    functions = [item for owner in owners for item in (vars(owner).values() if inspect.isclass(owner) else [owner])]
    for function in functions:
        code = getattr(function, "__code__", None)
        name = getattr(code, "co_filename", None)
        in_file = isinstance(name, str) and Path(name).is_file() and getattr(function, "__module__", "") != "__main__"
        if not isinstance(name, str) or name in seen or in_file:
            continue
        seen.add(name)
        lines = linecache.getlines(name, getattr(function, "__globals__", None))
        if lines:
            yield name, "".join(lines)
