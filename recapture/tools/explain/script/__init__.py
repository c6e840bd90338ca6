"""A cell as a short script without this project: its text, and whether it shows the fault when it runs."""
