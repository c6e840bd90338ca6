"""Cells from plan to record: planning, running, observing, judging, storing, and printing as a script."""
