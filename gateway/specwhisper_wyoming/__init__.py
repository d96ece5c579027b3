"""A server of the Wyoming protocol, for Home Assistant; needs the extra ``wyoming``."""
