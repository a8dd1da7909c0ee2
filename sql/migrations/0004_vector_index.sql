-- How the vector leg finds its candidates: by all vectors, by their signs, or by an index that is built when it pays.

-- A page holds one vector either way, and a quarter of it was empty while the rest of the row lay elsewhere: what is read
-- for every match of a question's words (keywords, term_weights) stays in line now, the text is what moves out.
ALTER TABLE memory_chunk SET (toast_tuple_target = 8160);
ALTER TABLE memory_chunk ALTER COLUMN keywords SET STORAGE MAIN, ALTER COLUMN term_weights SET STORAGE MAIN;

-- The signs of a vector's values: 192 bytes instead of 6 kB, so that a scan over all chunks stays short. In line too.
ALTER TABLE memory_chunk ADD COLUMN bits BIT(1536) GENERATED ALWAYS AS (binary_quantize(embedding)::bit(1536)) STORED;
ALTER TABLE memory_chunk ALTER COLUMN bits SET STORAGE PLAIN;
-- Read from end to end, and never for an id: it is the narrow copy of the table that holds just what that scan needs.
CREATE INDEX memory_chunk_bits ON memory_chunk (id) INCLUDE (note_id, bits);

ALTER TABLE sync_state
    ADD CHECK (vector_index IN ('exact', 'bits', 'hnsw', 'ivfflat')),
    -- What the operator asked for, and what was known when vector_index was chosen.
    ADD COLUMN vector_index_choice TEXT NOT NULL DEFAULT 'auto'
        CHECK (vector_index_choice IN ('auto', 'exact', 'bits', 'hnsw', 'ivfflat')),
    ADD COLUMN vector_index_chunks BIGINT NOT NULL DEFAULT 0,
    ADD COLUMN vector_index_model  TEXT,
    ADD COLUMN vector_index_recall REAL;        -- recall@10 against exact search, where it was measured

CREATE OR REPLACE VIEW memory_live AS
SELECT c.id AS chunk_id, c.note_id, c.ordinal, c.heading_path, c.level, c.start_line, c.end_line, c.content, c.text_hash,
       c.script, c.embedding, c.keywords, c.term_weights, p.source, p.title, p.tags, p.links, p.note_date, p.updated_at,
       p.blob_id, p.content_hash, p.commit, c.bits
FROM memory_chunk c
JOIN memory_primary p ON p.id = c.note_id
WHERE p.ruleset_id = (SELECT s.ruleset_id FROM sync_state s);
