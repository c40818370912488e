"""A world in one process that can be repeated from a seed: disks that forget, and what must hold all the same."""
