"""Our one process against what else runs Whisper: transformers, faster-whisper, openai/whisper."""
