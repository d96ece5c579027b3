"""The service's own engines in simulated time: only models, links and clocks are made up.

What is simulated is what a pass costs, what a message takes and what a pair of models writes; who drafts how
far, what is dropped, who waits and who shares a pass is decided by the code that serves.
"""
