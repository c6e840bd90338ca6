"""Makes the project page of a release: its addresses, and a README whose links lead to the repository.

A checkout does not know where it is published. A release is built by a workflow, which says so in its environment; a
wheel that is built elsewhere has no addresses, and the README as it stands.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s]+)\)")


class ProjectPage(MetadataHookInterface):  # type: ignore[misc]
    """Fills in the fields `readme` and `urls`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the fields to the metadata of a build."""
        root = Path(self.root)
        text = (root / "README.md").read_text("utf-8")
        address = repository(dict(os.environ))
        if address:
            (version,) = VERSION.findall((root / "recapture" / "base" / "version.py").read_text("utf-8"))
            text = with_absolute_links(text, f"{address}/blob/v{version}")
            metadata["urls"] = {
                "Repository": address,
                "Changelog": f"{address}/blob/v{version}/CHANGELOG.md",
                "Documentation": f"{address}/blob/v{version}/docs/index.md",
                "Issues": f"{address}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def repository(environment: dict[str, str]) -> str:
    """Return the address of the repository whose workflow builds, or nothing outside a workflow."""
    server, name = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_REPOSITORY", "")
    return f"{server}/{name}" if server and name else ""


def with_absolute_links(text: str, folder: str) -> str:
    """Return Markdown whose links to files of the repository are absolute: an index shows the text without them."""
    return _LINK.sub(lambda match: f"]({folder}/{match[1]})", text)
