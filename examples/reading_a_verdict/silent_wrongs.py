"""Print every silently wrong cell of the results below a folder: silent_wrongs.py FOLDER."""

import json
import sys
from pathlib import Path

for file in sorted(Path(sys.argv[1]).rglob("conformance.jsonl")):
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["verdict"] in ("wrong", "specialized"):
            print(f"{record['case']}::{record['compiler']} is {record['verdict']}")
            for difference in record["differences"]:
                sides = f"eager {difference.get('eager')}, {record['compiler']} {difference.get('other')}"
                print(f"  {difference['input']}, {difference['where']} ({difference['kind']}): {sides}")
