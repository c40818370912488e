"""Parts of `./dev bench memory`."""
