"""An HTTP server with OpenAI's audio API; needs the extra ``gateway``."""
