"""How soon an utterance is final after the end of speech, and how often it ends within a sentence."""
