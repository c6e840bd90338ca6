"""Takes a minute to import."""

import time

time.sleep(60)
