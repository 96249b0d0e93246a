"""Pure functions: evidence in, verdict out.  No clock, no randomness, no I/O, no memory of the last call."""
