"""``recapture results verify``: whether results that somebody sends can be true."""
