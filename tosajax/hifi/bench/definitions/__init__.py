"""The kernels and layers as their definitions read, in NumPy: what benches and tests compare with.

They share no arithmetic with the kernels: integers are Python's, of any size, or int64 where that
holds them; floats are float64.
"""
