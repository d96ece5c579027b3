"""The target server: sessions in slots, one batch loop, gRPC around it."""
