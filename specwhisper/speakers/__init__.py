"""Who speaks when in a recording: a stage beside the text, which it does not change."""

from specwhisper.speakers.diarizer import Diarizer
from specwhisper.transcription.speakers import Turn

__all__ = ["Diarizer", "Turn"]
