"""Checks a user's own code: derives its held-out inputs in a child, and runs the generated case as any other."""
