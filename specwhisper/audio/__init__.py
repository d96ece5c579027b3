"""From any audio to the 16 kHz stream and the features that Whisper hears; without torch or network."""
