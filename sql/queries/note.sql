-- Notes by identity, or by the end of their path; an exact identity comes first.
SELECT id, source, title, content, content_hash, blob_id, commit
FROM memory_live_note
WHERE id = ANY(%(ids)s::text[])
   OR EXISTS (SELECT FROM unnest(%(ids)s::text[]) AS w (ending) WHERE right(id, char_length(w.ending) + 1) = '/' || w.ending)
ORDER BY id = ANY(%(ids)s::text[]) DESC, id
LIMIT 6
