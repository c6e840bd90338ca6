"""Measures recapture itself: its clock, its isolation, its start, and its judge."""
