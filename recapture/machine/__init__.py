"""Facts about this machine and installation: environment, hardware, the doctor's checks, the pins of images."""
