"""Every compiler that ships, by name, in the order of the reports; one file a family."""
