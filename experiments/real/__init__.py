"""The real pair, whisper-base and whisper-tiny.en, on human speech: text, agreement, time."""
