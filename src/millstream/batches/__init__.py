"""Exactly-once batches: files are staged, then committed to queues in one step, or not at all."""
