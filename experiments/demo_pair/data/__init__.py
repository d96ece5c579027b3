"""The corpus: sentences, speech, word pieces and training windows."""
