"""Tables, bars, figures and a page from a sweep's runs."""
