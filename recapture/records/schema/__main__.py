"""Regenerates the shipped JSON Schemas: ``python -m recapture.records.schema``."""

from __future__ import annotations

from recapture.base.by_name import load
from recapture.records import eager_file
from recapture.records.schema import PATH, schema_text, text

if __name__ == "__main__":
    # This is a command, so it may call by name what is above this package: the table of what tools add.
    of_tools = load("recapture.command.command_table:of_tools")
    eager = (eager_file.PATH, schema_text(eager_file.json_schema()))
    for path, content in [(PATH, text()), eager, *(schema() for schema in of_tools("schema"))]:
        path.write_text(content, encoding="utf-8")
        print(path)
