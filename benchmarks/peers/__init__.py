"""Other programs for the same work. Each is imported only when it is asked to do one."""
