"""Ready-made pipelines: each a file to run as it is, or to copy and change."""
