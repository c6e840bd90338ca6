"""What a run leaves on disk: verdicts, records, schemas, directories; reading and writing, nothing else."""
