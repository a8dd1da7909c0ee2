-- The chunks of a note in order, without their text.
SELECT chunk_id, heading_path, level, start_line, end_line FROM memory_live WHERE note_id = %(id)s::text ORDER BY ordinal
