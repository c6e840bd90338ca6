"""Makes what a release has and a checkout has not: its project page, and the data inside the package.

The data are one document of all committed results. `lint`, `history` and `explain` read it where there is no checkout.
A checkout does not know where it is published. A release is built by a workflow, which says so in its environment; a
wheel that is built elsewhere has no addresses, and the README as it stands.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

VERSION = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)
_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s]+)\)")


DATA = "recapture/data/data.json.gz"
"""Where the data are in a wheel and in a source distribution; `recapture.data.SHIPPED` reads them there."""


class ShippedData(BuildHookInterface):  # type: ignore[misc]
    """Puts the data into the package. An editable install reads those that `recapture data` builds."""

    def dependencies(self) -> list[str]:
        """Return what the build needs: the package reads its own results."""
        return list(self.metadata.core.dependencies) if self._reads_results() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the data where there are results; a source distribution has the file already."""
        if version == "editable":
            # Of this list pytest takes the last parts as modules that it has to rewrite for the plugin, and warns in
            # every project about `types`, which Python itself imports. The suites are read in the checkout.
            data = self.build_config.get_force_include().items()
            build_data["force_include_editable"] = {path: place for path, place in data if Path(path).name != "suites"}
            return
        if not self._reads_results():
            return
        sys.path.insert(0, self.root)
        from recapture.data import encode
        from recapture.tools.site.collect import collect
        from recapture.tools.site.data_package import packed

        path = Path(self.root) / "build" / "shipped-data.json.gz"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(packed(encode(collect(Path(self.root) / "results"))))
        build_data["force_include"][str(path)] = DATA

    def _reads_results(self) -> bool:
        return (Path(self.root) / "results").is_dir()


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
