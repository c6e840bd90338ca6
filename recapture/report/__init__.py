"""What a results directory says, for people: as Markdown, as a page of HTML, and on the terminal."""
