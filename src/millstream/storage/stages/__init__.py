"""Staged batches on disk: rows that nobody sees before they are committed."""
