"""Many short sessions that end at any moment, and some long ones: servers must leak nothing."""
