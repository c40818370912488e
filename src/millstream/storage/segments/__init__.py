"""The segments of queues: the messages themselves, for dispatch, replay and Spark."""
