"""The longer statements of the store, as literals.

Belongs here: SQL text of the writing side. Does not: code.
"""

from typing import Final, LiteralString

COUNTS: Final[LiteralString] = """
SELECT count(*) FILTER (WHERE status = 'indexed') AS indexed,
       count(*) FILTER (WHERE status = 'excluded') AS excluded,
       count(*) FILTER (WHERE status = 'quarantined') AS quarantined,
       count(*) FILTER (WHERE status = 'skipped') AS skipped,
       count(*) FILTER (WHERE status = 'failed') AS failed,
       (SELECT count(*) FROM memory_primary) AS notes,
       (SELECT count(*) FROM memory_chunk) AS chunks,
       (SELECT coalesce(sum(token_count), 0)::bigint FROM memory_primary) AS tokens,
       (SELECT count(*) FROM memory_chunk c
        WHERE NOT EXISTS (SELECT FROM memory_primary p WHERE p.id = c.note_id)) AS orphans,
       (SELECT count(*) FROM memory_primary p WHERE NOT EXISTS
          (SELECT FROM note_state s WHERE s.id = p.id AND s.status IN ('indexed', 'failed'))) AS unlisted,
       (SELECT count(*) FROM memory_secure_audit a JOIN memory_primary p ON p.id = a.id
        WHERE a.action = 'quarantined') AS leaks,
       pg_total_relation_size('memory_primary') + pg_total_relation_size('memory_chunk') AS size_bytes
FROM note_state
"""

KNOWN_VECTORS: Final[LiteralString] = """
WITH wanted AS (SELECT unnest(%s::text[]) AS text_hash), how AS (SELECT %s::text AS model, %s::int AS dimensions)
SELECT text_hash FROM wanted, how
WHERE EXISTS (SELECT FROM memory_chunk c WHERE c.text_hash = wanted.text_hash AND c.model = how.model
              AND c.dimensions = how.dimensions AND c.embedding IS NOT NULL)
   OR EXISTS (SELECT FROM embedding_stage e WHERE e.text_hash = wanted.text_hash AND e.model = how.model
              AND e.dimensions = how.dimensions)
"""

VECTORS: Final[LiteralString] = """
WITH wanted AS (SELECT DISTINCT unnest(%s::text[]) AS text_hash),
     how AS (SELECT %s::text AS model, %s::int AS dimensions)
SELECT wanted.text_hash, found.embedding FROM wanted, how, LATERAL (
    SELECT c.embedding FROM memory_chunk c WHERE c.text_hash = wanted.text_hash AND c.model = how.model
    AND c.dimensions = how.dimensions AND c.embedding IS NOT NULL
    UNION ALL
    SELECT e.embedding FROM embedding_stage e WHERE e.text_hash = wanted.text_hash AND e.model = how.model
    AND e.dimensions = how.dimensions
    LIMIT 1) AS found
"""

RESCUE: Final[LiteralString] = """
INSERT INTO embedding_stage (text_hash, model, dimensions, embedding, run)
SELECT DISTINCT ON (c.text_hash, c.model, c.dimensions) c.text_hash, c.model, c.dimensions, c.embedding, %s
FROM unnest(%s::text[], %s::text[]) AS w (note_id, text_hash)
JOIN memory_chunk c ON c.text_hash = w.text_hash
WHERE c.note_id <> w.note_id AND c.note_id = ANY(%s) AND c.embedding IS NOT NULL
  AND NOT EXISTS (SELECT FROM memory_chunk own WHERE own.note_id = w.note_id AND own.text_hash = w.text_hash)
ON CONFLICT DO NOTHING
"""

UNCOVERED: Final[LiteralString] = """
SELECT DISTINCT c.note_id FROM memory_chunk c WHERE c.embedding IS NOT NULL AND NOT EXISTS
  (SELECT FROM embedding_stage s WHERE s.text_hash = c.text_hash AND s.model = %s AND s.dimensions = %s)
"""

FLIP_CHUNKS: Final[LiteralString] = """
UPDATE memory_chunk c SET embedding = s.embedding, model = %s, dimensions = %s FROM embedding_stage s
WHERE s.text_hash = c.text_hash AND s.model = %s AND s.dimensions = %s AND c.embedding IS NOT NULL
"""

INSERT_NOTE: Final[LiteralString] = """
INSERT INTO memory_primary (id, source, content, content_hash, embedding, blob_id, title, tags, front_matter, links,
                            note_date, commit, ruleset_id, model, token_count)
VALUES (%s, %s, %s, %s, %b, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""

INSERT_CHUNK: Final[LiteralString] = """
INSERT INTO memory_chunk (id, note_id, ordinal, heading_path, level, start_line, end_line, content, text_hash, model,
                          dimensions, script, embedding, keywords, term_weights)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %s::tsvector, %s::sparsevec)
"""

ADD_TERMS: Final[LiteralString] = """
INSERT INTO memory_term AS t (dimension, chunks) SELECT * FROM unnest(%s::int[], %s::int[])
ON CONFLICT (dimension) DO UPDATE SET chunks = t.chunks + EXCLUDED.chunks
"""

DROP_TERMS: Final[LiteralString] = """
DELETE FROM memory_term t USING unnest(%s::int[], %s::int[]) AS d (dimension, n)
WHERE t.dimension = d.dimension AND t.chunks <= d.n
"""

LESSEN_TERMS: Final[LiteralString] = """
UPDATE memory_term t SET chunks = t.chunks - d.n FROM unnest(%s::int[], %s::int[]) AS d (dimension, n)
WHERE t.dimension = d.dimension
"""

WRITE_STATE: Final[LiteralString] = """
INSERT INTO note_state (id, status, blob_tag, ruleset_id, reason, step, error_class, attempts, next_retry_at, commit)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
ON CONFLICT (id) DO UPDATE SET status = EXCLUDED.status, blob_tag = EXCLUDED.blob_tag, ruleset_id = EXCLUDED.ruleset_id,
    reason = EXCLUDED.reason, step = EXCLUDED.step, error_class = EXCLUDED.error_class, attempts = EXCLUDED.attempts,
    next_retry_at = EXCLUDED.next_retry_at, commit = EXCLUDED.commit, updated_at = now()
"""

WRITE_AUDIT: Final[LiteralString] = """
INSERT INTO memory_secure_audit AS a (id, source, reason, rules, lines, ruleset_id, action, was_embedded, embedded_by,
                                      embedded_at, secret_embedded, content_hmac)
VALUES (%(id)s, %(id)s, %(reason)s, %(rules)s, %(lines)s, %(ruleset)s, 'quarantined', %(embedded)s, %(by)s, %(at)s,
        %(held)s, %(hmac)s)
ON CONFLICT (id) DO UPDATE SET reason = EXCLUDED.reason, rules = EXCLUDED.rules, lines = EXCLUDED.lines,
    ruleset_id = EXCLUDED.ruleset_id, action = 'quarantined', was_embedded = a.was_embedded OR EXCLUDED.was_embedded,
    embedded_by = coalesce(EXCLUDED.embedded_by, a.embedded_by),
    embedded_at = coalesce(EXCLUDED.embedded_at, a.embedded_at),
    secret_embedded = a.secret_embedded OR EXCLUDED.secret_embedded, content_hmac = EXCLUDED.content_hmac,
    detected_at = CASE WHEN a.action = 'quarantined' THEN a.detected_at ELSE now() END,
    resolved_at = NULL, updated_at = now()
"""

READ_AUDIT: Final[LiteralString] = """
SELECT source, reason, rules, lines, action, was_embedded, secret_embedded, embedded_by, embedded_at, content_hmac,
       detected_at, resolved_at
FROM memory_secure_audit
WHERE (%(id)s::text IS NULL OR id = %(id)s) AND (%(closed)s OR action = 'quarantined')
ORDER BY id
"""
