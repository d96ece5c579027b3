"""What a decoder's pass costs, against what the machine must pay for it."""
