"""Live sessions with the protocol of OpenAI's realtime API."""
