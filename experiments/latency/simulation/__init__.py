"""The service's own engines in simulated time: only models, links and clocks are simulated.

The simulation provides the costs of forward passes and messages, and the text of a pair of models. The
service's code decides how far to draft, what to drop, when to wait and who shares a forward pass.
"""
