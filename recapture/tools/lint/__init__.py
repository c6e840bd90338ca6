"""``recapture lint``: from a line of source to what is recorded about it, without running anything."""
