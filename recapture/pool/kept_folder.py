"""The folder of builds that are kept from run to run (`recapture.torch_api.kept_builds`), and how much it may hold."""

from __future__ import annotations

from pathlib import Path

from recapture.base.cache_folder import gib_of, private_folder
from recapture.base.errors import EnvironmentUnfitError
from recapture.base.option_fields import GIB

FOLDER = "compiled"
"""Name of the folder, below the cache folder."""

LIMIT = "RECAPTURE_COMPILED_GIB"
"""Environment variable with the GiB that kept builds may take; 0 keeps none."""

DEFAULT_LIMIT = 12 * GIB
"""Bytes of all kept builds together, if the variable is not set: room for those of every image, half of it headers."""


def builds_limit() -> int:
    """Return the bytes that kept builds may take. Raises UsageError for a variable that is no number."""
    return gib_of(LIMIT, DEFAULT_LIMIT, least=0)


def kept_folder() -> tuple[Path | None, str]:
    """Return the folder of kept builds, and why there is none if another user could have changed what is in it."""
    if builds_limit() == 0:
        return None, ""
    try:
        return private_folder(FOLDER), ""
    except EnvironmentUnfitError as error:
        return None, str(error)
