"""A small document of data, as the site and the data package read it."""

from __future__ import annotations

import msgspec

from recapture.data import (
    Behaviour,
    Case,
    Change,
    Compiler,
    Data,
    Environment,
    Issue,
    MarkFacts,
    Run,
    Speed,
    Strip,
)

MARKS = {
    "P": ("pass", "right", "right", "right"),
    "p": ("pass_with_breaks", "right", "broken", "right, with graph breaks"),
    "w": ("specialized", "silently wrong", "wrong", "silently wrong"),
    "E": ("error", "failing", "failing", "refused at capture"),
    "-": ("not_applicable", "not run", "none", "does not apply"),
}


def planted(**changes):
    """A small document: two compilers on four releases and two capabilities."""
    cells = {
        "suite::branch": {
            "eager": {"cpu": Strip("PPPP"), "sm_90": Strip("..P.")},
            "compile": {
                "cpu": Strip("PwwP", (Run(1, 0, ("value",)), Run(3))),
                "sm_90": Strip("..P."),
            },
        },
        "suite::alias": {"eager": {"cpu": Strip("PPPP")}, "compile": {"cpu": Strip("-EEp", (Run(1, 1), Run(3, 2)))}},
        "lone::case": {"compile": {"cpu": Strip("PPPP")}},
    }
    document = Data(
        version="1.2.3",
        releases=("2.0.1", "2.1.2", "2.10.0", "2.11.0"),
        environments=(
            Environment(release="2.0.1", capability="cpu", image="torch2.0.1", torch="2.0.1+cu117", hardware="a CPU"),
            Environment(release="2.1.2", capability="cpu", image="torch2.1.2", torch="2.1.2+cu121"),
            Environment(release="2.10.0", capability="cpu", image="torch2.10.0", torch="2.10.0"),
            Environment(release="2.11.0", capability="cpu", image="torch2.11.0", torch="2.11.0"),
            Environment(release="2.10.0", capability="sm_90", image="bare-x", torch="2.10.0", hardware="H1", bare=True),
            Environment(
                release="2.1.2",
                capability="cpu",
                image="torch2.1.2-drifted",
                torch="2.1.2",
                in_strips=False,
                differs={"suite::branch::compile": "P"},
            ),
        ),
        marks={
            mark: MarkFacts(verdict=verdict, group=group, tone=tone, short=short, words=short)
            for mark, (verdict, group, tone, short) in MARKS.items()
        },
        kinds={"value": "A number differs.", "alias": "Two values share memory."},
        compilers={
            "eager": Compiler(family="reference", frontend="eager mode", sentence="Eager.", is_reference=True),
            "compile": Compiler(family="dynamo", frontend="torch.compile", sentence="`torch.compile`."),
        },
        texts=(
            "on held_out[0], result: value: eager 1, this 2",
            "torch.Unsupported: no such thing",
            "graph break: print",
        ),
        behaviours={
            "branch": Behaviour(
                title="A branch",
                sentence="It branches.",
                example="if x:\n    pass",
                cases=("suite::branch",),
                group="flow",
            ),
            "alias": Behaviour(title="An `alias`", sentence="It aliases.", example="x", cases=("suite::alias",)),
        },
        cases={
            name: Case(
                title=f"The case {name}.",
                file="suites/suite.py",
                line=3,
                code="def f(): ...",
                behaviour={"suite::branch": "branch", "suite::alias": "alias"}.get(name),
                cells=strips,
            )
            for name, strips in cells.items()
        },
        issues={
            "123": Issue(
                what="a branch is wrong",
                link="https://github.com/pytorch/pytorch/issues/123",
                compares="value",
                span="from 2.1.2, right from 2.11.0",
                sure="documented",
                documented="rwwr",
                measured={"cpu": "rwwr", "sm_90": "..r."},
                cells=("suite::branch::compile",),
            )
        },
        changes=(
            Change(
                last="2.0.1",
                first="2.1.2",
                compilers=("compile",),
                what="Guards were lost.",
                source="not documented",
                case="suite::branch",
                was="right",
                now="wrong",
            ),
        ),
        findings={},
        speeds=(
            Speed(
                workload="net",
                release="2.11.0",
                capability="cpu",
                hardware="a CPU",
                configuration="compile fp32",
                compiler="compile",
                verdict="pass",
                finding="faster",
                speedup=(2.0, 1.5, 2.5),
                seconds=0.001,
                eager_seconds=0.002,
                compile_seconds=3.0,
                memory=10_000_000,
            ),
        ),
    )
    return msgspec.structs.replace(document, **changes)


def pages_of(files):
    """The text of each page of a site, by its path."""
    return {name: text.decode() for name, text in files.items() if name.endswith(".html")}
