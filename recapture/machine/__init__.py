"""What this machine and installation are: environment, hardware, the doctor's checks, the pins of images."""
