"""The command line, with one module for each command: parsing, calling, exit status."""
