-- The tables of one source set. Unqualified names: the runner sets search_path to the set's schema, then public.

CREATE TABLE sync_state (
    singleton       BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (singleton),
    vault           TEXT,
    commit          TEXT,                       -- the last commit whose plan was carried out
    commit_time     TIMESTAMPTZ,
    ruleset_id      TEXT,
    embedder        TEXT CHECK (embedder IN ('openai', 'hashing')),
    model           TEXT,
    dimensions      INTEGER CHECK (dimensions BETWEEN 1 AND 1536),
    base_url        TEXT,
    key_fingerprint TEXT,
    vector_index    TEXT NOT NULL DEFAULT 'exact',
    generation      BIGINT NOT NULL DEFAULT 1,
    updated_at      TIMESTAMPTZ NOT NULL DEFAULT now()
);
INSERT INTO sync_state DEFAULT VALUES;

CREATE TABLE memory_primary (
    id           TEXT PRIMARY KEY,              -- vault-relative path, NFC
    source       TEXT NOT NULL,
    content      TEXT NOT NULL,
    content_hash TEXT NOT NULL,                 -- sha256 of the bytes
    embedding    VECTOR(1536),                  -- normalised mean of the chunks'
    updated_at   TIMESTAMPTZ NOT NULL DEFAULT now(),
    blob_id      TEXT NOT NULL,
    title        TEXT NOT NULL,
    tags         TEXT[] NOT NULL,
    front_matter JSONB NOT NULL,
    links        TEXT[] NOT NULL,
    note_date    TIMESTAMPTZ,                   -- front matter's updated, modified, date or created, in that order
    commit       TEXT NOT NULL,
    ruleset_id   TEXT NOT NULL,
    model        TEXT NOT NULL,
    token_count  INTEGER NOT NULL
);

CREATE TABLE memory_chunk (
    id           TEXT PRIMARY KEY,
    note_id      TEXT NOT NULL REFERENCES memory_primary (id) ON DELETE CASCADE,
    ordinal      INTEGER NOT NULL,
    heading_path TEXT NOT NULL,                 -- 'A > B'
    level        SMALLINT NOT NULL,
    start_line   INTEGER NOT NULL,              -- file lines, 1-based, inclusive
    end_line     INTEGER NOT NULL,
    content      TEXT NOT NULL,
    text_hash    TEXT NOT NULL,                 -- sha256 of the exact text that was embedded
    model        TEXT NOT NULL,
    dimensions   INTEGER NOT NULL,
    script       TEXT NOT NULL CHECK (script IN ('cjk', 'latin')),
    embedding    VECTOR(1536),                  -- null: nothing was worth embedding
    keywords     TSVECTOR NOT NULL,             -- our tokens, not a dictionary's
    term_weights SPARSEVEC(536870912) NOT NULL, -- saturated term frequency at crc32(token) mod 2^29
    UNIQUE (note_id, ordinal),
    CHECK (start_line >= 1 AND end_line >= start_line)
);
-- One vector fills a page either way; out of line it costs a second look-up a row (2.4 times the CPU at 10,000 rows).
ALTER TABLE memory_chunk ALTER COLUMN embedding SET STORAGE PLAIN;
CREATE INDEX memory_chunk_reuse ON memory_chunk (text_hash, model, dimensions);
CREATE INDEX memory_chunk_keywords ON memory_chunk USING gin (keywords);

CREATE TABLE memory_term (
    dimension INTEGER PRIMARY KEY,              -- crc32(token) mod 2^29: no token is stored, since one may be a secret
    chunks    INTEGER NOT NULL CHECK (chunks > 0)
);

CREATE TABLE memory_secure_audit (
    id           TEXT PRIMARY KEY,
    source       TEXT NOT NULL,
    risk         TEXT NOT NULL DEFAULT 'excluded_or_sensitive' CHECK (risk = 'excluded_or_sensitive'),
    reason       TEXT NOT NULL,
    rules        TEXT[] NOT NULL,
    lines        INTEGER[] NOT NULL,
    ruleset_id   TEXT NOT NULL,
    action       TEXT NOT NULL CHECK (action IN ('quarantined', 'released', 'deleted')),
    was_embedded BOOLEAN NOT NULL,
    embedded_by  TEXT,                          -- provider host of the version that had been embedded
    content_hmac TEXT NOT NULL,                 -- keyed: a bare hash would let anyone test guesses
    detected_at  TIMESTAMPTZ NOT NULL DEFAULT now(),
    resolved_at  TIMESTAMPTZ,
    updated_at   TIMESTAMPTZ NOT NULL DEFAULT now()
);

CREATE TABLE note_state (
    id            TEXT PRIMARY KEY,
    status        TEXT NOT NULL CHECK (status IN ('indexed', 'excluded', 'quarantined', 'skipped', 'failed')),
    blob_tag      TEXT NOT NULL,                -- blob id; its keyed hash where quarantined or excluded
    ruleset_id    TEXT NOT NULL,
    reason        TEXT,
    step          TEXT,
    error_class   TEXT,
    attempts      INTEGER NOT NULL DEFAULT 0,
    next_retry_at TIMESTAMPTZ,
    commit        TEXT,
    updated_at    TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE INDEX note_state_unsettled ON note_state (status) WHERE status <> 'indexed';

CREATE TABLE embedding_stage (
    text_hash  TEXT NOT NULL,
    model      TEXT NOT NULL,
    dimensions INTEGER NOT NULL,
    embedding  VECTOR(1536) NOT NULL,
    run        TEXT NOT NULL,
    created_at TIMESTAMPTZ NOT NULL DEFAULT now(),
    PRIMARY KEY (text_hash, model, dimensions)
);

CREATE TABLE embedding_usage (
    month        DATE NOT NULL,
    model        TEXT NOT NULL,
    texts        BIGINT NOT NULL,
    tokens       BIGINT NOT NULL,
    requests     BIGINT NOT NULL,
    price_usd    NUMERIC(14, 6) NOT NULL,
    PRIMARY KEY (month, model)
);

-- What a query may see: rows that the rules in force let through.
CREATE VIEW memory_live AS
SELECT c.id AS chunk_id, c.note_id, c.ordinal, c.heading_path, c.level, c.start_line, c.end_line, c.content, c.text_hash,
       c.script, c.embedding, c.keywords, c.term_weights, p.source, p.title, p.tags, p.links, p.note_date, p.updated_at,
       p.blob_id, p.content_hash, p.commit
FROM memory_chunk c
JOIN memory_primary p ON p.id = c.note_id
WHERE p.ruleset_id = (SELECT s.ruleset_id FROM sync_state s);

-- The same for whole notes: what `get` and `related` may see.
CREATE VIEW memory_live_note AS
SELECT p.id, p.source, p.title, p.content, p.content_hash, p.embedding, p.tags, p.links, p.front_matter, p.note_date,
       p.updated_at, p.blob_id, p.commit
FROM memory_primary p
WHERE p.ruleset_id = (SELECT s.ruleset_id FROM sync_state s);
