"""Networks that others made, beside the programs that they were made for."""
