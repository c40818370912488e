"""One folder per protocol, the same parts in each."""
