"""The tasks of the Long Range Arena: classify one long row of tokens."""
