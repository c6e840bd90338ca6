"""Compares results: `recapture diff` and `recapture history`."""
