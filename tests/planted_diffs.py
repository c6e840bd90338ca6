"""The stored results of three images that tests compare, and records to compare."""

from pathlib import Path

from recapture.records.record import Record
from recapture.records.verdicts import Verdict

RESOURCES = Path(__file__).parent / "resources" / "results"
IMAGES = RESOURCES / "images"
OLD = IMAGES / "torch2.6.0-cu124" / "cpu"
NEW = IMAGES / "bare-torch2.11.0-cu130" / "cpu"
GPU = IMAGES / "torch2.11.0-cu130" / "sm_90"


def record(verdict=Verdict.PASS, case="s::c", compiler="compile", device="cpu", case_hash="0", **fields):
    return Record(case=case, compiler=compiler, device=device, verdict=verdict, case_hash=case_hash, **fields)
