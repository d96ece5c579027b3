"""Is it exact? Every option, with speculation and without, against plain transformers."""
