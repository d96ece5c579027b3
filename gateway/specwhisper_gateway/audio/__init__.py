"""OpenAI's audio API: its fields, uploads and replies."""
