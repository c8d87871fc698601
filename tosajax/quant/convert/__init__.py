"""Float operators as integer operators, file by file as in the specification."""
