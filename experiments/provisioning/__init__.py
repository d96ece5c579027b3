"""Plan a fleet for live clients on paper: servers to buy, and waits when one is lost."""
