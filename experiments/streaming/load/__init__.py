"""Word errors against load: equal live streams at once."""
