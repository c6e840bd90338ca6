"""What results say, computed from records: counts, groups, changes, histories; nothing is presented here."""
