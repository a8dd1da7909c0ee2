"""The memory in an agent's hands: what it is handed, how it is started, and the journal of its sessions.

Light like the query package, for the same reason: a session waits for it. Only ``journal`` writes, and only into the
journal's folder and ``home``.
"""
