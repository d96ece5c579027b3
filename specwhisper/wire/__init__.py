"""The contract on the wire: generated messages, conversions, statuses, and both ends of a connection."""
