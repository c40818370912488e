"""The shared words: messages, topics, errors and limits. Knows nothing above it."""
