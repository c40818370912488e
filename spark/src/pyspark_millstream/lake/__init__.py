"""The lake: stream rows kept as a Parquet, Delta or Iceberg table, exactly once for every reader, without a jar."""
