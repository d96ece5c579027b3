"""Many servers under Ray: targets that scale, a front that leads to them, draft servers and gateways."""
