"""How much memory the process has, and giving it back."""
