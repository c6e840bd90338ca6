"""Users' own code: `recapture check` and `migrate`, the pytest plugin, and the Python API."""
