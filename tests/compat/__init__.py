"""The previous release and this one work together, whichever part is of which."""
