"""What the benchmark programs share: the brokers, the load generator's build, scenarios, verdicts and the report."""
