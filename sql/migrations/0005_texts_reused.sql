-- What was not paid for: texts whose vectors were there already, beside those that were bought.
ALTER TABLE embedding_usage ADD COLUMN texts_reused BIGINT NOT NULL DEFAULT 0;
