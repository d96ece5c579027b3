"""Any recogniser as a draft: its text becomes hints, which the target verifies."""
