"""The only place that constructs and wires."""
