"""The command line of the core: options, output, and the table by which tools are found."""
