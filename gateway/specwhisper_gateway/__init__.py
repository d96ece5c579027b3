"""An HTTP server in front of a draft server that speaks OpenAI's audio API; needs the extra ``gateway``."""
