"""Torch's samples of its operators, imported once by the server whose children make programs of them."""

from __future__ import annotations

from recapture.torch_api.operator_samples import operator_entries

ENTRIES = operator_entries()
"""Torch's entries by the name of the operator."""
