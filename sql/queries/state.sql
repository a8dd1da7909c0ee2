-- What the index is: which commit it shows, which embedder made its vectors and how they are searched.
SELECT commit, embedder, model, dimensions, vector_index FROM sync_state
