"""Other releases of torch under any command: `recapture upgrade` and `recapture bisect`."""
