"""Arguments of users: their types, names, arrays and numbers, checked where they come in."""
