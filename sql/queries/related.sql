-- Neighbours of a note: those that it links to or that link to it, then those whose vectors are nearest.
-- A link names a note by its file name, as Obsidian does; folders, suffix, anchor and case do not count.
WITH note AS (
    SELECT id, source, title, content, content_hash, blob_id, embedding,
           regexp_replace(lower(id), '^.*/|\.(md|markdown)$', '', 'g') AS name,
           ARRAY(SELECT regexp_replace(regexp_replace(lower(t), '#.*$', ''), '^.*/|\.(md|markdown)$', '', 'g')
                 FROM unnest(links) AS l (t)) AS targets
    FROM memory_live_note
), me AS (SELECT * FROM note WHERE id = %(id)s::text)
SELECT n.id, n.source, n.title, n.content, n.content_hash, n.blob_id,
       n.name = ANY(me.targets) AS is_target, me.name = ANY(n.targets) AS is_origin,
       1 - (n.embedding <=> me.embedding) AS similarity
FROM note n CROSS JOIN me
WHERE n.id <> me.id
ORDER BY (n.name = ANY(me.targets))::int + (me.name = ANY(n.targets))::int DESC, n.embedding <=> me.embedding, n.id
LIMIT %(pool)s
