"""The reader: a process beside the broker that serves what streams hold as Arrow batches over HTTP."""
