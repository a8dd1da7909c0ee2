-- Hybrid search in one statement: both legs over the filtered rows, and for every candidate of either leg both scores.
-- Fusion, limits and checks happen in vault_memory.query.search. A leg whose parameter is null stays empty. A hundred
-- candidates of each leg: numbers and no parameters, because a plan that is made once must know them.
-- Lines that end with a part's name belong to that part alone: adapters.sqlfiles leaves out those that a question does
-- not need, and a connection plans what is left once. Whole, as here, the file answers every question.
WITH question AS MATERIALIZED (
    -- Read once: it is 20 kB of text.
    SELECT v.vector, v.vector::halfvec(1536) AS halves, binary_quantize(v.vector)::bit(1536) AS bits
    FROM (SELECT %(vector)s::vector AS vector OFFSET 0) v
), corpus AS (
    -- A large store is not counted for every question; what ANALYZE knows is near enough for a logarithm.
    SELECT CASE WHEN c.reltuples >= 5000 THEN c.reltuples ELSE (SELECT count(*) FROM memory_live) END::float8 AS chunks
    FROM pg_class c WHERE c.oid = to_regclass('memory_chunk')
), term AS (
    SELECT q.dimension, q.lexeme, q.lexeme::tsquery AS query, coalesce(t.chunks, 0) AS chunks,
           ln(1 + (greatest(corpus.chunks, t.chunks) - coalesce(t.chunks, 0) + 0.5) / (coalesce(t.chunks, 0) + 0.5)) AS idf
    FROM unnest(%(dimensions)s::integer[], %(lexemes)s::text[]) AS q (dimension, lexeme)
    CROSS JOIN corpus
    LEFT JOIN memory_term t ON t.dimension = q.dimension
), weight AS (
    -- Indices of a sparse vector start at 1; two tokens at one place count once.
    SELECT ('{' || string_agg(d.dimension + 1 || ':' || d.idf, ',') || '}/536870912')::sparsevec AS vector,
           nullif((SELECT sum(idf) FROM term), 0) AS mass
    FROM (SELECT dimension, max(idf) AS idf FROM term GROUP BY dimension) d
), selecting AS (
    -- What is looked at: chunks with the question's rarest tokens, as many of them as match some thousands of chunks.
    -- The frequent ones (half of all English chunks hold "the") count in the score of what the others found.
    SELECT coalesce(string_agg(lexeme, ' | ') FILTER (WHERE matches <= 3000 OR place = 1), '')::tsquery AS query
    FROM (SELECT lexeme, sum(chunks) OVER rarest AS matches, row_number() OVER rarest AS place
          FROM term WINDOW rarest AS (ORDER BY chunks, dimension, lexeme ROWS UNBOUNDED PRECEDING)) ordered
), eligible AS NOT MATERIALIZED (
    SELECT l.* FROM memory_live l
    WHERE TRUE
      AND (%(path)s::text IS NULL OR l.source ~ %(path)s::text) -- @path
      AND (%(tag)s::text IS NULL OR EXISTS ( -- @tag
              SELECT FROM unnest(l.tags) AS t (name) -- @tag
              WHERE lower(t.name) = lower(%(tag)s::text) OR starts_with(lower(t.name), lower(%(tag)s::text) || '/'))) -- @tag
      AND (%(since)s::timestamptz IS NULL OR coalesce(l.note_date, l.updated_at) >= %(since)s::timestamptz) -- @since
      AND (%(heading)s::text IS NULL OR strpos(lower(l.heading_path), lower(%(heading)s::text)) > 0) -- @heading
), approximate AS (
    -- Candidates of the recorded index. Filters stand before the cut here too; where fewer than are wanted come out of
    -- an index, the exact search below takes over. A branch whose mode is another one is not run.
    (SELECT NULL AS chunk_id WHERE FALSE)
    UNION ALL -- @bits
    (SELECT chunk_id FROM eligible -- @bits
     WHERE %(index)s::text = 'bits' AND %(vector)s::vector IS NOT NULL AND bits IS NOT NULL -- @bits
     ORDER BY bits <~> (SELECT bits FROM question) LIMIT 1000) -- @bits
    UNION ALL -- @hnsw
    (SELECT chunk_id FROM eligible -- @hnsw
     WHERE %(index)s::text = 'hnsw' AND %(vector)s::vector IS NOT NULL AND embedding IS NOT NULL -- @hnsw
     ORDER BY embedding::halfvec(1536) <=> (SELECT halves FROM question) LIMIT 200) -- @hnsw
    UNION ALL -- @ivfflat
    (SELECT chunk_id FROM eligible -- @ivfflat
     WHERE %(index)s::text = 'ivfflat' AND %(vector)s::vector IS NOT NULL AND embedding IS NOT NULL -- @ivfflat
     ORDER BY embedding <=> (SELECT vector FROM question) LIMIT 200) -- @ivfflat
), nearest AS (
    (SELECT chunk_id, embedding <=> (SELECT vector FROM question) AS distance
     FROM approximate JOIN memory_live USING (chunk_id)
     ORDER BY distance LIMIT 100)
    UNION
    (SELECT chunk_id, embedding <=> (SELECT vector FROM question) AS distance FROM eligible
     WHERE %(vector)s::vector IS NOT NULL AND embedding IS NOT NULL
       AND (SELECT count(*) < 100 FROM approximate)
     ORDER BY distance LIMIT 100)
), vector_leg AS (
    SELECT chunk_id, row_number() OVER (ORDER BY distance, chunk_id) AS rank
    FROM nearest ORDER BY distance LIMIT 100
), keyword_leg AS (
    SELECT chunk_id, row_number() OVER (ORDER BY score DESC, chunk_id) AS rank, score
    FROM (SELECT chunk_id,
                 CASE WHEN %(prefix)s::text IS NULL THEN -(term_weights <#> (SELECT vector FROM weight))
                      -- One Chinese character is no token of most chunks that hold it: count it.
                      ELSE 1 - 1 / (1.0 + char_length(title || heading_path || content)
                                        - char_length(replace(title || heading_path || content, %(prefix)s::text, '')))
                 END AS score
          FROM eligible
          WHERE keywords @@ CASE WHEN %(prefix)s::text IS NULL THEN (SELECT query FROM selecting) ELSE %(query)s::tsquery END
          ORDER BY score DESC LIMIT 100) matching
), candidate AS (
    SELECT chunk_id FROM vector_leg UNION SELECT chunk_id FROM keyword_leg
)
SELECT state.commit AS indexed_commit, (SELECT chunks FROM corpus) AS chunks, l.chunk_id, l.note_id, l.source, l.title,
       l.heading_path, l.level, l.start_line, l.end_line, l.content, l.text_hash, l.script, l.blob_id, l.content_hash,
       coalesce(l.note_date, l.updated_at) AS dated,
       v.rank AS vector_rank, 1 - (l.embedding <=> (SELECT vector FROM question)) AS vector_score,
       k.rank AS keyword_rank, k.score AS keyword_score,
       CASE WHEN %(prefix)s::text IS NULL THEN coalesce(
           (SELECT sum(t.idf) FROM term t WHERE l.keywords @@ t.query) / weight.mass, 0)
           ELSE coalesce(k.score, 0) END AS coverage,
       -- Once is enough: with the first hit of either leg.
       CASE WHEN 1 IN (v.rank, k.rank) THEN (SELECT json_object_agg(dimension, idf) FROM term) END AS term_idf
FROM sync_state state
CROSS JOIN weight
LEFT JOIN (candidate JOIN memory_live l USING (chunk_id)) ON TRUE
LEFT JOIN vector_leg v USING (chunk_id)
LEFT JOIN keyword_leg k USING (chunk_id)
