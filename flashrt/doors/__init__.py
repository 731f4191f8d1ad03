"""The doors: what a person calls from Python. Each is a composition of the other rooms."""
