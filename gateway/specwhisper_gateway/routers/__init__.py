"""The gateway's routes, a file for each part of the API."""
