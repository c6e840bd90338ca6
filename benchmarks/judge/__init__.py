"""Measures the error rate of the judge: planted differences it must see, planted equals it must not blame."""
