"""How like real pairs a pair of models errs."""
