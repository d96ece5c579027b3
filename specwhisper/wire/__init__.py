"""The contract on the wire: generated messages, conversions, statuses, and both ends of a connection."""

PROTOCOL_VERSION = 2  # raised whenever draft and target of different releases could misunderstand each other
CLIENT_PROTOCOL_VERSION = 1  # likewise of clients, the gateway among them, and draft servers
HEARTBEAT_S = 5.0  # between two signs of life of either side of a session
