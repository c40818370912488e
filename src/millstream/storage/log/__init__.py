"""The write-ahead log: how it looks on disk, writing it, its files, and reading it after a start."""
