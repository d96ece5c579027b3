"""Replay: models with the cost of one shape and the text and acceptance of the demo pair.

A *trace* stores the demo target's text of some recordings, and what its draft would have proposed at
every position. A *replay model* runs the full forward pass of another shape (whisper-small, large-v3 ...)
with random weights, discards its choice and returns the trace's token. So a forward pass costs what it costs
at that shape, and a candidate is accepted where the demo pair's own is. A replay model recognises no speech:
results measured with one are labelled "replay".
"""
