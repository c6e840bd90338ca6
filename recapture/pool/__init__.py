"""Isolated processes: a server forks a child for each task. It knows tasks as ``module:function`` only."""
