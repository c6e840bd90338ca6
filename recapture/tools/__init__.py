"""Tools: each in a folder of its own, and none imports another."""
