"""The contract on the wire: generated messages, conversions, statuses, and both ends of a connection."""

# A version is raised whenever peers of different releases could misunderstand each other. The oldest one that
# is still spoken is at most that of the previous release.
PROTOCOL_VERSION = 2  # of draft and target servers
OLDEST_PROTOCOL_VERSION = 2
CLIENT_PROTOCOL_VERSION = 1  # of clients, the gateway among them, and draft servers
OLDEST_CLIENT_PROTOCOL_VERSION = 1
HEARTBEAT_S = 5.0  # between two signs of life: of either side of a session, and of draft servers to clients
SILENCE_S = 15.0  # who gives no sign of life for so long is gone, whatever the connection says
WELCOME_S = 60.0  # for the first word on a stream: a busy target opens a session between two steps
