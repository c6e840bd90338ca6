"""Work that is spread over machines: plans, shards and their merge, batch systems, and the search for a release."""
