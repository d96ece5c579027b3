"""A server of the Wyoming protocol; needs the extra ``wyoming``."""
