"""The tool behind `recapture drift`: what eager, a compiler or training gives on two releases, devices or machines."""
