-- A chunk by its id, or by the start of one.
SELECT chunk_id, note_id, heading_path, level, start_line, end_line
FROM memory_live WHERE starts_with(chunk_id, %(chunk)s::text) ORDER BY chunk_id LIMIT 2
