"""In which language windows are transcribed where the language changes."""
