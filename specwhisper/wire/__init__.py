"""The contract on the wire: generated messages, conversions, statuses, and both ends of a connection."""

PROTOCOL_VERSION = 1  # raised whenever draft and target of different releases could misunderstand each other
