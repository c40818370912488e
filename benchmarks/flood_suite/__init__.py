"""Floods of publishers at full speed: how long newcomers wait, and whether consumers get their share."""
