"""A CTC head on the target's own encoder, whose text is a hint for the target."""
