"""One schema, loaded strictly."""
