-- Whether nothing but vault-memory lives in this database, and this role may change its privileges.
SELECT pg_has_role(d.datdba, 'USAGE')
       AND NOT EXISTS (
           SELECT FROM pg_namespace n
           WHERE n.nspname NOT LIKE 'pg\_%' AND n.nspname NOT IN ('information_schema', 'public')
             AND to_regclass(format('%I.schema_migration', n.nspname)) IS NULL
       )
       AND NOT EXISTS (
           SELECT FROM pg_class c
           WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
       )
FROM pg_database d
WHERE d.datname = current_database();
