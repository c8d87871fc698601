"""Other programs for the same work. Each is imported at its first work."""
