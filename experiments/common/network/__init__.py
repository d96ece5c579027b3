"""Networks that delay, cut, reorder or damage what they carry."""
