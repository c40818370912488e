"""`./dev bench spark`: what Spark reads and writes through the broker's reader, beside what it does without."""
