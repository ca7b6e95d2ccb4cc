"""Values in, decisions out: no I/O, no clock, no chance."""
