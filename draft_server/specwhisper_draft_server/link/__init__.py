"""The link to target servers: discovery, choice, connections and sessions there."""
