"""A run: from the plan of its cells to the files of its results."""
