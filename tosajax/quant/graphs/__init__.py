"""Float graphs before quantization, and the functions that they were made of."""
