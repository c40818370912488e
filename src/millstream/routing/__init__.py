"""From topics to receivers: topic tree, route cache, shared subscriptions, retained messages."""
