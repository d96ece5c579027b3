"""Ray Serve deployment: targets, draft servers, their locators and gateways."""
