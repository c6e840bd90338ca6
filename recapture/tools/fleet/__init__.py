"""Spreads work over images and machines: `recapture matrix`, `plan`, `merge` and `bisect`."""
