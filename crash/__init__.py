"""The broker is killed again and again under load; clients in another process know what was promised to them."""
