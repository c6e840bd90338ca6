"""Isolated processes: a server that forks a child for each task; it knows tasks by ``module:function``, nothing of cells."""
