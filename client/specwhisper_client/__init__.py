"""The client: a Python API and a command line that send audio to a draft server and show its text."""
