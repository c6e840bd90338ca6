"""What results say: verdicts, kinds of differences, records, and the directories that hold them."""
