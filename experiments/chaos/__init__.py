"""Kill, stop and drain servers, cut networks, and compare clients' text with that of a calm run."""
