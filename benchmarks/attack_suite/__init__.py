"""`./dev bench attack`: forty ways to hurt a broker, and what its other clients feel meanwhile."""
