"""Sans-IO codecs and machines: what travels and what follows from it; no clock, no awaiting."""
