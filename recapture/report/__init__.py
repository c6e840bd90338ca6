"""What people read about results: Markdown, HTML and terminal output."""
