"""Eager against captured code: one cell, from its first call to its verdict."""
