"""Regenerates the shipped JSON Schemas: ``python -m recapture.records.schema``."""

from __future__ import annotations

from recapture.records.schema import PATH, SPEEDUPS_PATH, speedups_text, text

if __name__ == "__main__":
    for path, content in ((PATH, text()), (SPEEDUPS_PATH, speedups_text())):
        path.write_text(content, encoding="utf-8")
        print(path)
