"""What everything else builds on: errors, text, scrubbing, files, locks, paths, and access to torch's private parts."""
