"""Workers are killed and frozen at random while machines are revalidated; every act leaves a line that cannot be taken back.

`world`: the machines. `job`: a stand-in revalidation on our engine. `crowd`: worker processes and what is done to them.
`harm`: what must not be found in the lines afterwards. `round`: all of it together. `python -m tests.torture --help`.
"""
