"""The gateway's page in a browser."""
