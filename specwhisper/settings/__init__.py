"""One settings class a program: the source of its flags, environment variables and documentation."""
