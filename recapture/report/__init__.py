"""Reports for people: Markdown, HTML and terminal output."""
