"""Measures speed: `recapture bench`."""
