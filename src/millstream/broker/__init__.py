"""The domain: publish, subscriptions, sessions, wills. No sockets, no clock, no protocol."""
