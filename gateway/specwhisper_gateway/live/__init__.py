"""The page's own protocol: audio up, every change of the text down, drafts and figures too."""
