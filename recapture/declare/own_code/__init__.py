"""A user's own code as a case: how a target is named and loaded, and which held-out inputs are derived for it."""
