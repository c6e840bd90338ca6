"""Write the shipped JSON Schema again: ``python -m recapture.schema``."""

from __future__ import annotations

from recapture.schema import PATH, text

if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
    print(PATH)
