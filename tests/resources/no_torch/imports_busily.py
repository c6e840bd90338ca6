"""Takes three seconds to import, of which it computes all the time."""

import time

end = time.monotonic() + 3
while time.monotonic() < end:
    sum(range(1000))
