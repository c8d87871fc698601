"""The test benches of the library as a command: `python -m tosajax.hifi.bench NAME ...`.

They have the options and the files of the guide's chapter 5. Kernels run through their functions in
`tosajax.hifi.capi`, layers through the C functions of `tosajax.hifi.layers`. Each test bench module
has a `Bench`, whose `job` makes a `Job` from the values of options.
"""
