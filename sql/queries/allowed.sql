SELECT note_id, rule FROM memory_live_allowed WHERE note_id = ANY(%(ids)s)
