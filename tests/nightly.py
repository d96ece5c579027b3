"""Whether what takes long is run as well, as it is every night."""

import os

NIGHTLY = "SPECWHISPER_NIGHTLY" in os.environ
