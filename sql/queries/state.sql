-- What the index is: which commit it shows and which embedder made its vectors.
SELECT commit, embedder, model, dimensions FROM sync_state
