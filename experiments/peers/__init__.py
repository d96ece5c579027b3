"""One target, run by this project in every mode and by other programs, in turns."""
