"""A check of user code for continuous integration: JUnit's XML, and the annotations and summary of GitHub."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from recapture.base.text import one_line, printable, shorten
from recapture.records.verdicts import Group, Verdict

if TYPE_CHECKING:
    from recapture.tools.check.answers import CheckReport, CheckRow

LONGEST_ANNOTATION = 1000
"""Characters of the longest part of an annotation; a kept report may quote anything."""


def check_junit(report: CheckReport, when: datetime | None = None) -> bytes:
    """Return a report as JUnit's XML: a test case for each compiler.

    A silently wrong compiler is a failure, one that fails is an error, one that does not apply is skipped. The elements
    and attributes are those that the strictest readers ask for, in their order. `when` is the time of the check in UTC.
    """
    when = when or datetime.now(timezone.utc)
    # The machine's own name is left out: the file may be published.
    suite = ET.Element("testsuite", name="recapture", package="", id="0", hostname="localhost")
    suite.set("timestamp", when.strftime("%Y-%m-%dT%H:%M:%S"))
    properties = ET.SubElement(suite, "properties")
    for name in ("target", "torch", "device", "image"):
        ET.SubElement(properties, "property", name=name, value=_plain(getattr(report, name)))
    counts = {"tests": len(report.rows), "failures": 0, "errors": 0, "skipped": 0}
    for row in report.rows:
        testcase = ET.SubElement(
            suite, "testcase", classname=_plain(report.target), name=_plain(row.compiler), time=f"{row.seconds:.3f}"
        )
        tag, counted = _outcome(row)
        if tag is None:
            continue
        counts[counted] += 1
        message = _plain(f"{row.words}: {row.reason}")
        element = ET.SubElement(testcase, tag, message=message)
        if tag != "skipped":
            element.set("type", row.verdict)
            element.text = "\n".join(map(_plain, (*row.differences, row.advice)))
    for name, number in counts.items():
        suite.set(name, str(number))
    suite.set("time", f"{sum(row.seconds for row in report.rows):.3f}")
    ET.SubElement(suite, "system-out").text = _plain(f"{report.sentence}; tried: {report.inputs_in_words}")
    ET.SubElement(suite, "system-err").text = ""
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


_OUTCOMES: dict[Group, tuple[str | None, str]] = {
    "right": (None, ""),
    "silently wrong": ("failure", "failures"),
    "failing": ("error", "errors"),
    "not run": ("skipped", "skipped"),
}


def _outcome(row: CheckRow) -> tuple[str | None, str]:
    """Return the element that says how a test case ended, and the attribute that counts it; None if it passed."""
    return _OUTCOMES[Verdict(row.verdict).facts.group]


def check_annotations(report: CheckReport) -> list[str]:
    """Return GitHub's workflow commands: an error for a silently wrong compiler, a warning for a failing one."""
    lines = []
    for row in report.rows:
        kind = {"failures": "error", "errors": "warning"}.get(_outcome(row)[1])
        if kind is not None:
            title = _property(f"{report.target}: {row.compiler}")
            lines.append(
                f"::{kind} title={title}::{annotation_text(f'{row.words}: {row.reason} {row.advice}'.strip())}"
            )
    return lines


def _plain(text: str) -> str:
    """Return text on one line without characters that XML cannot hold."""
    return printable(one_line(text), keep="")


def annotation_text(text: str) -> str:
    """Return text as a workflow command takes it: one line of limited length, with escapes."""
    return shorten(one_line(text), LONGEST_ANNOTATION).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return annotation_text(text).replace(":", "%3A").replace(",", "%2C")
