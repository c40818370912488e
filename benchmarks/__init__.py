"""Benchmarks of the running broker against its peers: one runner, one load generator, one report."""
