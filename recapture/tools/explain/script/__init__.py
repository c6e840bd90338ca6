"""A cell as a script that runs without this project: a long one with the judge, or a short one for an issue."""
