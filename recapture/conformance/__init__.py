"""A cell from plan to record: plan, run, observe, judge, file, and print as a script."""
