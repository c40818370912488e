"""The operations themselves, by what they are about."""
