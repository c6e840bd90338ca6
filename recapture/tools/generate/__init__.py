"""Programs that nobody wrote: made from torch's own operator samples, run as cells, and grouped by what they show."""
