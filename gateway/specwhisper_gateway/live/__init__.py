"""The page's own protocol: audio up; text and statistics down."""
