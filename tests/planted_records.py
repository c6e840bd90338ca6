"""What a record of each verdict has to say for itself: readers refuse one that contradicts itself."""

from recapture.records.record import Difference, ErrorInfo
from recapture.records.verdicts import SILENTLY_WRONG, Verdict


def evidence(verdict):
    """The fields that a record with this verdict cannot be without."""
    if verdict in SILENTLY_WRONG:
        label = "example" if verdict is Verdict.WRONG else "held_out[0]"
        return {"input": label, "differences": (Difference(label, "result", "value", ""),)}
    return {"error": ErrorInfo("E", "m", "0123456789")} if verdict is Verdict.ERROR else {}
