"""Replay: models of true cost and true acceptance, which run one shape and write what the demo pair wrote.

A *trace* holds what the demo target wrote over some recordings, and what its draft would have proposed at
every position of it. A *replay model* does the whole forward pass of another shape (whisper-small,
large-v3 ...) with random weights, throws its choice away and gives the trace's token instead. So a pass
costs what it costs at that shape, and a candidate is accepted exactly where the demo pair's own is. Nothing
that such a model writes is recognised by it: whatever is measured with one says "replay".
"""
