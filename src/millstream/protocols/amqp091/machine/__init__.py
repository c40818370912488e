"""The rules of AMQP 0-9-1: bytes in, events and bytes out."""
