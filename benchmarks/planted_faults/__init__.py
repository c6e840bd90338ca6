"""Compilers with a planted fault each, and whether the guilty stage of each is found."""
