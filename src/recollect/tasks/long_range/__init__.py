"""The tasks of the Long Range Arena: one long row of tokens, one question about all of it."""
