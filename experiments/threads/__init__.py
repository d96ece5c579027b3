"""Many threads on one ``SpeculativeWhisper``: right texts, and what sharing its forward passes gains."""
