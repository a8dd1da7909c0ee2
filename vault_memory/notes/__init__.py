"""What a note is and what is done to it: pure functions and values.

Belongs here: paths, exclusion, secrets, Markdown, chunks, tokens, the planner.
Does not: files, sockets, processes, clocks, the environment.
"""
