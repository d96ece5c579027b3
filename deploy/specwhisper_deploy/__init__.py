"""Many servers under Ray: targets that scale, a locator that leads to them, draft servers and gateways."""
