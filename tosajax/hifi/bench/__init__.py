"""The test benches of the library as a command: `python -m tosajax.hifi.bench NAME ...`.

They have the options and the files of the guide's chapter 5. A kernel runs through its function in
`tosajax.hifi.capi`, a layer through the C functions of `tosajax.hifi.layers`. Each module of a test
bench has OPTIONS, ABOUT, and `job`, which makes of the values of options what `_job` runs.
"""
