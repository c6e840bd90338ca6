"""Where claims come from: every id that is used is defined, every one defined is shown or explained, and what shows it exists."""

from __future__ import annotations

import ast
import functools
import json
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import CliRunner

from recapture.base.errors import UsageError
from recapture.cases.collection import shipped_suites
from recapture.command.command_table import COMMANDS
from recapture.command.main import _run as run_command_line
from recapture.command.main import cli
from recapture.known.claims import CLAIMS
from recapture.machine.doctor import register
from recapture.records.directories import find_results, read_results
from recapture.run.runner import _warnings as warnings_of_a_run
from recapture.tools.speed.conditions import cpu_conditions

REPOSITORY = Path(__file__).resolve().parents[1]
SUITES = REPOSITORY / "suites"

SEEDS = {
    *(f"T{number}" for number in range(1, 23)),
    *(f"S{number}" for number in range(1, 7)),
    *(f"L{number}" for number in range(1, 5)),
    *(f"I{number}" for number in range(9)),
    "K1",
}

SOURCE = '[sources.X]\ntitle = "A"\nkind = "blog"\nlanguage = "English"\ntorch = "2.6"\n'


def claims_in(path: Path) -> dict[str, set[str]]:
    """The ids that each definition of a file names in its decorator's `claims=`, also by a list that has a name.

    The file is parsed and not executed: some need packages that are not installed everywhere.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lists = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    ids_by_name: dict[str, set[str]] = {}
    for node in tree.body:
        for decorator in getattr(node, "decorator_list", []):
            for keyword in getattr(decorator, "keywords", []):
                if keyword.arg == "claims":
                    values = [keyword.value]
                    values += [
                        lists[name_node.id] for name_node in ast.walk(keyword.value) if isinstance(name_node, ast.Name)
                    ]
                    ids_by_name[node.name] = {name for value in values for name in ids_in(value)}  # type: ignore[attr-defined]
    return ids_by_name


def ids_in(value: ast.expr) -> set[str]:
    tuples: list = [node for node in ast.walk(value) if isinstance(node, ast.Tuple) and len(node.elts) in (2, 3)]
    return {node.elts[0].value for node in tuples if isinstance(node.elts[0], ast.Constant)}  # type: ignore[misc]


@functools.cache
def used_ids() -> dict[str, set[str]]:
    """What uses each id: ``case SUITE::NAME`` and ``workload FILE::NAME`` of the suites that ship."""
    users = defaultdict(set)
    for kind, folder in (("case", SUITES), ("workload", SUITES / "speedups")):
        for path in sorted(folder.glob("*.py")):
            for name, ids in claims_in(path).items():
                for claim_id in ids:
                    users[claim_id].add(f"{kind} {path.stem}::{name}")
    return users


def definitions(path: Path) -> set[str]:
    return {getattr(node, "name", "") for node in ast.parse(path.read_text(encoding="utf-8")).body}


def missing(kind: str, name: str) -> str | None:
    """What is wrong with something that is said to check a claim; None where it exists."""
    if kind in ("case", "workload"):
        file, _, what = name.partition("::")
        path = (SUITES if kind == "case" else SUITES / "speedups") / f"{file}.py"
        return None if path.is_file() and what in definitions(path) else f"no {kind} {name}"
    if kind == "test":
        file, _, what = name.partition("::")
        path = REPOSITORY / file
        return None if path.is_file() and what in definitions(path) else f"no test {name}"
    if kind == "check":
        return None if name in register._REGISTER else f"no check {name}"
    program, command, *arguments = shlex.split(name)
    if program != "recapture" or command not in COMMANDS:
        return f"no command {name}"
    options = {option for parameter in cli.get_command(click.Context(cli), command).params for option in parameter.opts}
    unknown = [argument for argument in arguments if argument.startswith("-") and argument not in options]
    return f"{name}: no option {unknown[0]}" if unknown else None


def test_every_id_of_the_five_documents_is_defined():
    assert set(CLAIMS.shipped) == SEEDS


def test_every_id_that_a_case_or_workload_uses_is_defined():
    undefined = {name: sorted(users) for name, users in used_ids().items() if name not in CLAIMS.shipped}
    assert undefined == {}


def test_the_ids_are_read_from_every_way_of_writing_them(tmp_path):
    file = tmp_path / "x.py"
    file.write_text(
        'COMMON = [("A1", ">1", "2x")]\n\n\n@case(claims={"compile": ("A2", "right"), "fx": [("A3", "error")]})\n'
        'def f(x): ...\n\n\n@workload(claims={"compile": COMMON})\ndef g(): ...\n'
    )
    assert claims_in(file) == {"f": {"A2", "A3"}, "g": {"A1"}}


@pytest.mark.parametrize("claim", CLAIMS.shipped.values(), ids=lambda claim: claim.id)
def test_the_cases_and_workloads_that_show_a_claim_are_those_that_name_it(claim):
    named = {str(evidence) for evidence in claim.shown_by if evidence.kind in ("case", "workload")}
    assert named == used_ids()[claim.id]
    assert claim.shown_by or claim.not_shown


@pytest.mark.parametrize("claim", CLAIMS.shipped.values(), ids=lambda claim: claim.id)
def test_what_shows_a_claim_exists(claim):
    assert [wrong for evidence in claim.shown_by if (wrong := missing(evidence.kind, evidence.name))] == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("case", "graphs::no_such"),
        ("case", "no_such::bar"),
        ("workload", "mlp::no_such"),
        ("check", "no-such"),
        ("test", "tests/test_claim_sources.py::test_no_such"),
        ("command", "recapture bench --no-such"),
        ("command", "recapture no-such"),
    ],
)
def test_what_does_not_exist_is_noticed(kind, name):
    assert missing(kind, name)


def test_every_id_in_the_committed_records_is_defined():
    used = {
        claim.id
        for directory in find_results(REPOSITORY / "results")
        for record in read_results(directory).records
        for claim in record.claims
    }
    assert used
    assert used <= set(CLAIMS.shipped)


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "claims.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_claim_is_read_with_its_source(tmp_path):
    text = (
        SOURCE + '[claims.X1]\nsource = "X"\nclaim = "It is faster."\ntorch = ">=2.3,<2.10"\nshown_by = ["case a::b"]\n'
    )
    (claim,) = CLAIMS.load(write(tmp_path, text)).values()
    assert (claim.id, claim.source.title, claim.source.link, claim.torch) == ("X1", "A", None, ">=2.3,<2.10")
    assert [(evidence.kind, evidence.name) for evidence in claim.shown_by] == [("case", "a::b")]
    with pytest.raises(AttributeError):
        claim.id = "X2"  # type: ignore[misc]


CLAIM = '[claims.X1]\nsource = "X"\nclaim = "It is faster."\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (SOURCE + CLAIM, "claim X1: neither shown_by nor not_shown is given"),
        (SOURCE + CLAIM.replace('"X"', '"Y"') + 'not_shown = "."\n', "claim X1: unknown source 'Y'"),
        (SOURCE + '[claims.X1]\nclaim = "It is faster."\nnot_shown = "."\n', "missing required field `source`"),
        (SOURCE + CLAIM + 'shown_as = "."\n', "unknown field `shown_as`"),
        (SOURCE + 'author = "."\n[claims]\n', "unknown field `author`"),
        (SOURCE + "[claims]\n[claim]\n", "unknown field `claim`"),
        (SOURCE + CLAIM + 'not_shown = "."\n' + CLAIM, "twice"),
        (SOURCE + CLAIM + 'shown_by = ["guess x"]\n', "claim X1: 'guess x' in shown_by"),
        (SOURCE + CLAIM + 'shown_by = ["case"]\n', "claim X1: 'case' in shown_by"),
        (SOURCE + CLAIM + 'not_shown = "."\ntorch = "2.x"\n', "claim X1: a range of releases"),
        (SOURCE + 'link = "javascript:alert(1)"\n[claims]\n', "source X: the link"),
        (SOURCE + 'link = "https://a.org/\\" onclick=x"\n[claims]\n', "source X: the link"),
        ("[claims", "claims.toml"),
        ("x = \x00", "claims.toml"),
    ],
)
def test_a_fault_in_the_file_is_one_line_that_names_it(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(UsageError) as raised:
        CLAIMS.load(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_file_that_is_absent_or_no_text_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="cannot read the published claims"):
        CLAIMS.load(tmp_path / "claims.toml")
    (tmp_path / "claims.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="utf-8"):
        CLAIMS.load(tmp_path / "claims.toml")


def test_the_file_of_claims_is_no_suite():
    assert "claims" not in {suite.name for suite in shipped_suites()}


def test_an_installed_package_finds_the_claims(tmp_path):
    """The package beside data/suites, as the wheel lays them out, with no checkout around it."""
    shutil.copytree(
        REPOSITORY / "recapture", tmp_path / "recapture", ignore=shutil.ignore_patterns("__pycache__", "data")
    )
    shutil.copytree(SUITES, tmp_path / "recapture" / "data" / "suites")
    program = "from recapture.known.claims import CLAIMS; print(len(CLAIMS.shipped))"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(SEEDS)


def listed(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["list", "--claims", *arguments], standalone_mode=False)
    assert result.exception is None
    return result.output


def test_the_list_has_every_claim_with_its_source_and_what_shows_it():
    text = listed()
    for claim in CLAIMS.shipped.values():
        assert f"  {claim.id:4}{claim.claim}" in text
        assert claim.source.title in text
        for evidence in claim.shown_by:
            assert str(evidence) in text


def test_claims_are_chosen_by_id():
    text = listed("S5")
    assert "InternalTorchDynamoError" in text
    assert "claimed for torch: >=2.3,<2.10" in text
    assert "T16" not in text


def test_the_list_as_json_holds_the_same():
    (claim,) = json.loads(listed("T7", "--json"))
    assert claim["id"] == "T7"
    assert claim["source"]["link"].startswith("https://docs.pytorch.org/tutorials/")
    assert claim["shown_by"] == [{"kind": "workload", "name": "densenet121::densenet121_eval"}]
    assert "2.91×" in claim["figures"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--claims", "T99"], "no claim 'T99'"),
        (["--claims", "--compilers"], "cannot be combined"),
        (["--claims", "-k", "x"], "cannot be combined"),
        (["--compilers", "eager"], "takes no argument"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line(capsys, arguments, message):
    assert run_command_line(["list", *arguments]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_gpu_that_the_claims_do_not_assume_gets_a_warning():
    environment = read_results(REPOSITORY / "results" / "torch2.11.0-cu130" / "sm_90").environment
    for capability in ("sm_70", "sm_80", "sm_90", "cpu"):
        assert list(warnings_of_a_run(msgspec.structs.replace(environment, capability=capability), [], [], "")) == []
    (text,) = warnings_of_a_run(msgspec.structs.replace(environment, capability="sm_86"), [], [], "")
    assert "assume capability 7.0, 8.0 or 9.0; this GPU is sm_86" in text


def test_a_run_that_may_not_keep_what_it_compiles_says_why():
    environment = read_results(REPOSITORY / "results" / "torch2.11.0-cu130" / "cpu").environment
    [text] = warnings_of_a_run(environment, [], [], "other users can write to /cache")
    assert text == "warning: compiled code is not kept for later runs: other users can write to /cache"


@pytest.mark.parametrize(("preloaded", "allocator"), [("", "libc"), ("/opt/lib/libjemalloc.so.2", "jemalloc")])
def test_a_benchmark_records_threads_affinity_and_allocator(monkeypatch, preloaded, allocator):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("LD_PRELOAD", preloaded)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 3, 5})
    try:
        conditions = cpu_conditions(1.0, 1.0, None, None)
    finally:
        torch.set_num_threads(before)
    assert (conditions.threads, conditions.affinity, conditions.allocator) == (1, 3, allocator)
