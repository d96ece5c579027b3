"""Compare every option, with and without a draft, with plain transformers."""
