"""The test benches of the library as a command: `python -m tosajax.hifi.bench NAME ...`.

They have the options and the files of the guide's chapter 5. Kernels run by their functions in
`tosajax.hifi.capi`, layers by the C functions of `tosajax.hifi.layers`. Each module of a test bench
has a `Bench`, whose `job` makes a `Job` of the values of options.
"""
