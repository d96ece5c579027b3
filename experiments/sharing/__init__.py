"""What a distilled draft costs beside its teacher, when both have one encoder."""
