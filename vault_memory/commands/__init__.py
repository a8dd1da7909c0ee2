"""What the operator's commands do, without their flags.

Belongs here: one module a command that is more than a call; each returns values and prints nothing itself.
Does not: parsing of arguments and printing (``cli``), steps of ingest.
"""
