"""The data package: every verdict of every release in one small file, read without torch.

`recapture data` writes it from the committed results, as packages for pip and npm. `load` reads it. The JSON Schema
beside it describes every field, so that editors, linters and other sites can read it as well::

    from recapture.data import load

    data = load()
    strip = data.cases["control_flow::branch_on_sum"].cells["jit.trace"]["cpu"]
    for span in data.spans(strip):
        print(span.first, span.last, span.outcome)
"""

from __future__ import annotations

import gzip
import importlib.util
import inspect
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from recapture.base.errors import UsageError
from recapture.base.paths import CHECKOUT
from recapture.base.paths import PACKAGE as OWN_FOLDER

SCHEMA_VERSION: Literal[1] = 1

FILE = "data.json.gz"
"""Name of the file in the package for pip. The package for npm has the same document as ``data.json``."""

SCHEMA_FILE = "schema.json"
"""Name of the JSON Schema in both packages."""

PACKAGE = "recapture_data"
"""Name of the Python package that holds the file."""

BUILT = Path("build") / "recapture-data"
"""The folder, in a checkout, into which the packages are built."""

SHIPPED = OWN_FOLDER / "data" / FILE
"""The file inside a wheel of `recapture`, which the build writes from the results."""

NOT_RECORDED = "."
"""The mark of a release that has no record of a cell."""

MOST_BYTES = 256 << 20
"""Bytes of the longest document that is read."""

Outcome = Literal["right", "silently wrong", "failing", "not run"]


class MarkFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a character in a strip means: a verdict, its group, its tone and its meaning, in short and in words."""

    verdict: str
    short: str
    group: Outcome
    tone: Literal["right", "broken", "wrong", "failing", "none"]
    words: str


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where the cells of one release and capability were recorded.

    `image` is the folder of the results, `torch` the full version, `packages` those whose release matters, by name.
    `hardware` is the processor or the GPU. `bare` says that the packages were not those of an image's lock. An
    environment that is not `in_strips` repeats a release with other packages; `differs` then has its marks, by cell
    (``suite::name::compiler``), where they differ from the strip's.
    """

    release: str
    capability: str
    image: str
    torch: str
    python: str | None = None
    packages: dict[str, str] = {}
    hardware: str | None = None
    bare: bool = False
    in_strips: bool = True
    differs: dict[str, str] = {}


class Compiler(msgspec.Struct, frozen=True, kw_only=True):
    """One way to capture or compile: its family, one sentence, and the first release that has it."""

    family: str
    frontend: str
    sentence: str
    since: str | None = None
    is_reference: bool = False


class Run(msgspec.Struct, frozen=True, array_like=True):
    """What is recorded from one release of a strip on: the place of a text in `Data.texts`, and kinds of differences.

    `at` is the index of the release. `text` is None where there is nothing to say. `kinds` are those of the silent
    differences.
    """

    at: int
    text: int | None = None
    kinds: tuple[str, ...] = ()


class Strip(msgspec.Struct, frozen=True, omit_defaults=True):
    """A cell on one capability: one mark for each of `Data.releases`, and details where they change."""

    marks: str
    runs: tuple[Run, ...] = ()


class Case(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A case with its cells: strips by compiler, then by capability (``cpu``, ``sm_90``).

    `file` is the path of its suite in the repository. `names` are the functions and methods that its code calls, such
    as ``torch.argmin`` and ``.argmin``. `model` is the library and the name of a model of the zoo. `threads` are the
    public threads about its cells, each with the compilers that it is about.
    """

    title: str = ""
    file: str = ""
    line: int | None = None
    code: str = ""
    names: tuple[str, ...] = ()
    behaviour: str | None = None
    model: tuple[str, str] | None = None
    threads: dict[str, tuple[str, ...]] = {}
    cells: dict[str, dict[str, Strip]] = {}


class Behaviour(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cases that show one behaviour, under an id that never changes its meaning.

    `rewrite` are cases with other code for the same purpose. `graph_break` is an id in torch's registry of the reasons
    of graph breaks, and `graph_break_page` torch's page about it.
    """

    title: str
    sentence: str
    example: str
    cases: tuple[str, ...]
    group: str = ""
    cure: str | None = None
    rewrite: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    graph_break: str | None = None
    graph_break_page: str | None = None


class Issue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A known public issue: what its sources say about each release, and what the records say.

    `documented` has one character a release: ``w`` wrong, ``r`` right, ``.`` nothing is said. `measured` has, for each
    capability, ``w`` wrong, ``o`` wrong in another way, ``r`` right, ``e`` fails, ``-`` not run, ``.`` not recorded.
    """

    what: str
    link: str
    compares: str
    span: str
    sure: str
    documented: str
    measured: dict[str, str] = {}
    cells: tuple[str, ...] = ()
    advisory: str | None = None
    gpu: bool = False
    not_shown: str | None = None
    explanation: str | None = None


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A change between two releases that was looked into; without a case, of what the names of compilers mean."""

    last: str
    first: str
    compilers: tuple[str, ...]
    what: str
    source: str
    case: str | None = None
    was: str | None = None
    now: str | None = None
    device: str = "cpu"
    """``cuda`` if a GPU alone shows the change."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The cause of silently wrong cells: what is wrong, whose fault it is, the source, and the cells."""

    what: str
    fault: str
    source: str
    cells: tuple[str, ...] = ()


class Speed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One configuration of a workload, timed on one release and device.

    `speedup` is eager's time over the configuration's, with the ends of its 95 % interval; above 1 is faster. Times
    are seconds an iteration, `compile_seconds` the seconds of the first calls with empty caches, memory in bytes.
    """

    workload: str
    release: str
    capability: str
    hardware: str
    configuration: str
    compiler: str
    verdict: str
    finding: str | None = None
    speedup: tuple[float, float, float] | None = None
    seconds: float | None = None
    eager_seconds: float | None = None
    compile_seconds: float | None = None
    memory: int | None = None
    eager_memory: int | None = None
    reason: str | None = None


class Span(NamedTuple):
    """Neighbouring releases of a strip with one outcome; None for the outcome where nothing is recorded."""

    first: str
    last: str
    outcome: Outcome | None


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """The document. `releases` is the axis of every strip, oldest first. `kinds` has the meaning of each kind."""

    version: str
    releases: tuple[str, ...]
    environments: tuple[Environment, ...]
    marks: dict[str, MarkFacts]
    kinds: dict[str, str]
    compilers: dict[str, Compiler]
    texts: tuple[str, ...]
    behaviours: dict[str, Behaviour]
    cases: dict[str, Case]
    issues: dict[str, Issue]
    changes: tuple[Change, ...]
    findings: dict[str, Finding]
    speeds: tuple[Speed, ...]
    schema: Literal[1] = SCHEMA_VERSION

    @property
    def capabilities(self) -> tuple[str, ...]:
        """The capabilities that have strips, the CPU first."""
        names = {environment.capability for environment in self.environments if environment.in_strips}
        return tuple(sorted(names, key=lambda name: (name != "cpu", name)))

    def outcome(self, mark: str) -> Outcome | None:
        """Return what a mark amounts to; None if nothing is recorded."""
        return None if mark == NOT_RECORDED else self.marks[mark].group

    def spans(self, strip: Strip) -> Iterator[Span]:
        """Yield the spans of a strip, oldest first; neighbouring releases with the same outcome are one."""
        named = zip(self.releases, map(self.outcome, strip.marks), strict=True)
        for outcome, group in itertools.groupby(named, key=lambda pair: pair[1]):
            releases = [release for release, _ in group]
            yield Span(releases[0], releases[-1], outcome)


def decode(document: bytes) -> Data:
    """Return the document of some JSON; raises ValueError for what this version does not understand."""
    data = msgspec.json.decode(document, type=Data)
    length = len(data.releases)
    known = data.marks.keys() | {NOT_RECORDED}
    for name, case in data.cases.items():
        for compiler, strips in case.cells.items():
            for capability, strip in strips.items():
                if len(strip.marks) != length or not known.issuperset(strip.marks):
                    raise ValueError(
                        f"the marks of {name}::{compiler} on {capability} are not those of {length} releases"
                    )
    return data


def encode(data: Data) -> bytes:
    """Return the JSON of the document: the same bytes for the same data, with a line break at the end.

    The order of the keys is that of the data: compilers are in the order of the reports.
    """
    return msgspec.json.encode(data) + b"\n"


def load(path: Path | None = None) -> Data:
    """Return the data of a file, or of the package ``recapture-data``.

    Without a path, this is the file that was built in the checkout, else that of the installed package
    ``recapture-data``, else the one inside the installed `recapture`. Raises UsageError, in one line, if there is none
    or it cannot be read.
    """
    place = path if path is not None else find()
    if place is None:
        raise UsageError("there are no data: install the package recapture-data, or run `recapture data` in a checkout")
    try:
        content = place.read_bytes()
        if content[:2] == b"\x1f\x8b":
            with gzip.open(place) as file:
                content = file.read(MOST_BYTES)
        return decode(content)
    except (OSError, EOFError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read the data in {place}: {reason}") from None


def find() -> Path | None:
    """Return the file of the data, or None: built in the checkout, of ``recapture-data``, or inside `recapture`."""
    built = CHECKOUT / BUILT / "pip" / PACKAGE / FILE
    if built.is_file():
        return built
    spec = importlib.util.find_spec(PACKAGE)
    places = [] if spec is None or spec.origin is None else [Path(spec.origin).with_name(FILE)]
    places.append(SHIPPED)
    return next((place for place in places if place.is_file()), None)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the document, the same on every Python."""
    schema = msgspec.json.schema(Data)
    for part in schema["$defs"].values():
        if "description" in part:
            part["description"] = inspect.cleandoc(part["description"])  # as Python 3.13 does by itself
    schema["$defs"]["Data"]["required"].append("schema")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"recapture data, version {SCHEMA_VERSION}",
        **schema,
    }
