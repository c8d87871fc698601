"""The kernels and layers as their definitions read, in NumPy, for test benches and tests.

They share no arithmetic with the kernels: integers are Python's, of any size, or int64 where that
holds them; floats are float64.
"""
