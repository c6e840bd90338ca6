"""Defects to plant, by what they change; each module is also a file of compilers for ``recapture run``."""
