"""Hosts that refine a value in a fixed number of steps: init, K times step, readout."""
