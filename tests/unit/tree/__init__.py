"""The tree itself: layers, pages, language."""
