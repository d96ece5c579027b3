"""The speakers of a recording: a stage beside the text, which it does not change."""
