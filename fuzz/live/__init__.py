"""Fuzzing of live connections: a real broker, many connections of mutated conversations, and a witness."""
