-- Findings that the operator released, and what became of a secret before it was found.

-- Only for notes that are in memory because of a release; the list itself is a file outside the vault.
CREATE TABLE memory_allowed (
    note_id      TEXT NOT NULL REFERENCES memory_primary (id) ON DELETE CASCADE,
    rule         TEXT NOT NULL,
    content_hmac TEXT NOT NULL,                 -- keyed hash of the exact bytes that were released
    expires_at   TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (note_id, rule)
);

-- A release that has run out counts for nothing at once, whenever the next sync comes.
CREATE VIEW memory_live_allowed AS
SELECT a.note_id, a.rule FROM memory_allowed a WHERE a.expires_at > now();

ALTER TABLE memory_secure_audit
    ADD COLUMN embedded_at TIMESTAMPTZ,         -- when the version that had been embedded was written
    ADD COLUMN secret_embedded BOOLEAN NOT NULL DEFAULT FALSE;  -- that version matches the rules too: it was sent
