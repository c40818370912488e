"""The load generator: its own process, pre-encoded packets, whole batches at a time; compiled with mypyc."""
