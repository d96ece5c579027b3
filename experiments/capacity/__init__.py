"""How many sessions one target carries, and what a split gains where the target is what is scarce."""
