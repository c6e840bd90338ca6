"""The files that a run writes: verdicts, records, schemas and directories. Only reading and writing, no rendering."""
