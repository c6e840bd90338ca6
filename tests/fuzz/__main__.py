"""``python -m tests.fuzz``: see `tests.fuzz.fuzzer`."""

import sys

from tests.fuzz.fuzzer import main

if __name__ == "__main__":
    sys.exit(main())
