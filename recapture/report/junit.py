"""JUnit's XML for continuous integration, as the strictest of its readers ask for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import NamedTuple
from xml.etree import ElementTree as ET

from recapture.base.text import one_line, printable
from recapture.records.verdicts import Group, Verdict


class JUnitCase(NamedTuple):
    """A test case: `message` and `details` say how it ended, if it did not pass."""

    classname: str
    name: str
    seconds: float
    verdict: Verdict
    message: str
    details: Sequence[str] = ()


_OUTCOMES: dict[Group, tuple[str | None, str]] = {
    "right": (None, ""),
    "silently wrong": ("failure", "failures"),
    "failing": ("error", "errors"),
    "not run": ("skipped", "skipped"),
}
"""The element that says how a test case ended, and the attribute that counts it; no element if it passed."""


def junit(
    cases: Sequence[JUnitCase], properties: Mapping[str, str], output: str, when: datetime | None = None
) -> bytes:
    """Return test cases as JUnit's XML.

    What is silently wrong is a failure, what fails is an error, what does not apply is skipped. The elements and
    attributes are in the order that the strictest readers ask for. `when` is the time of the tests in UTC.
    """
    when = when or datetime.now(timezone.utc)
    # The machine's own name is left out: the file may be published.
    suite = ET.Element("testsuite", name="recapture", package="", id="0", hostname="localhost")
    suite.set("timestamp", when.strftime("%Y-%m-%dT%H:%M:%S"))
    rows = ET.SubElement(suite, "properties")
    for name, value in properties.items():
        ET.SubElement(rows, "property", name=name, value=_plain(value))
    counts = {"tests": len(cases), "failures": 0, "errors": 0, "skipped": 0}
    for case in cases:
        testcase = ET.SubElement(
            suite, "testcase", classname=_plain(case.classname), name=_plain(case.name), time=f"{case.seconds:.3f}"
        )
        tag, counted = _OUTCOMES[case.verdict.facts.group]
        if tag is None:
            continue
        counts[counted] += 1
        element = ET.SubElement(testcase, tag, message=_plain(case.message))
        if tag != "skipped":
            element.set("type", case.verdict.value)
            element.text = "\n".join(map(_plain, case.details))
    for name, number in counts.items():
        suite.set(name, str(number))
    suite.set("time", f"{sum(case.seconds for case in cases):.3f}")
    ET.SubElement(suite, "system-out").text = _plain(output)
    ET.SubElement(suite, "system-err").text = ""
    root = ET.Element("testsuites")
    root.append(suite)
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _plain(text: str) -> str:
    """Return text on one line without characters that XML cannot hold."""
    return printable(one_line(text), keep="")
