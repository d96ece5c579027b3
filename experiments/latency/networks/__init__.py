"""A slow network between two processes, three ways: kernel netem, an emulator of IP packets, a TCP proxy."""
