"""The edge process: client sessions, the drafting loop and the link to a target."""
