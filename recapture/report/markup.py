"""Untrusted text as Markdown: escaped, as code, or as a link."""

from __future__ import annotations

import re

from recapture.base.escape import html_text
from recapture.base.escape import markdown_code as code
from recapture.base.escape import markdown_text as plain

__all__ = ["code", "html_text", "link", "plain"]


def link(markdown: str, address: str) -> str:
    """Return Markdown as a link; the characters of the address that could end the link are percent-encoded."""
    encoded = re.sub(r"[\s()<>|\\`\"]", lambda match: f"%{ord(match[0]):02X}", address)
    return f"[{markdown}]({encoded})"
