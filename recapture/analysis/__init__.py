"""Computes facts from records: counts, groups, changes, histories. Nothing is rendered here."""
