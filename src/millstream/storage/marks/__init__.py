"""Small files beside the log that speak of all of it."""
