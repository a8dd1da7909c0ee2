-- How much the read-only role can find.
SELECT count(DISTINCT note_id) AS indexed, count(*) AS chunks FROM memory_live
