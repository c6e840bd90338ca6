"""The site and the data package: `recapture site`."""
