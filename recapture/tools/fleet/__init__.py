"""Spreads work over images and machines: `recapture matrix`, `plan` and `merge`."""
