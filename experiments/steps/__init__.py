"""Cost of a decoder's forward pass compared with the machine's floor."""
