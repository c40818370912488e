"""The rules of the specification: bytes in, events and bytes out."""
