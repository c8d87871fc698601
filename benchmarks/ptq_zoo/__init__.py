"""Post-training quantization of networks that others trained, beside other quantizers."""
