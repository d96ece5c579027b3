"""One settings class for each program.

It is the source of the program's flags, environment variables and documentation.
"""
