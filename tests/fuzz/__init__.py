"""A seeded fuzzer of every file that recapture reads and every command that reads one."""
