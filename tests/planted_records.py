"""What a record of each verdict has to say for itself: readers refuse one that contradicts itself."""

import re

from recapture.records.difference import Difference
from recapture.records.older_versions import SentenceDifference, difference_of
from recapture.records.record import ErrorInfo
from recapture.records.verdicts import SILENTLY_WRONG, Verdict


def evidence(verdict):
    """The fields that a record with this verdict cannot be without."""
    if verdict in SILENTLY_WRONG:
        label = "example" if verdict is Verdict.WRONG else "held_out[0]"
        return {"input": label, "differences": (Difference(label, "result", "value", ""),)}
    return {"error": ErrorInfo("E", "m", "0123456789")} if verdict is Verdict.ERROR else {}


def difference(label, where, kind, sentence, **numbers):
    """A difference with the fields that make a sentence."""
    if count := re.match(r"(\d+) of (\d+) elements", sentence):
        numbers.setdefault("elements", (int(count[1]), int(count[2])))
    if sentence.startswith("value differs: "):
        numbers.setdefault("elements", (1, 1))
    converted = difference_of(SentenceDifference(label, where, kind, sentence, **numbers))
    assert converted.text is None, f"no fields make {sentence!r}"
    return converted
