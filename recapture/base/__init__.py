"""What everything else builds on: errors, text, scrubbing, files, locks, paths, and what is private to torch."""
