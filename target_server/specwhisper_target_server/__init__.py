"""The GPU process: sessions in slots, one batch loop over all of them, gRPC around it."""
