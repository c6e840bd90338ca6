"""Stands in for torch in servers whose processes alone are tested: they start in a tenth of a second."""


def set_num_threads(number):
    """Change nothing."""
