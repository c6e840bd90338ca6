"""Sphinx configuration of the site: Markdown pages, the furo theme, no downloads when building or reading."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import reference

from recapture import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "recapture"
release = __version__
html_title = "recapture"
extensions = ["myst_parser"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
exclude_patterns = ["_build"]
nitpicky = True


def setup(app: Sphinx) -> None:
    """Write the generated pages before Sphinx looks for pages."""
    app.connect("builder-inited", lambda application: reference.write(Path(application.srcdir) / "generated"))
