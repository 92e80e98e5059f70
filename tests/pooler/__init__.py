"""A relayer behind a real PgBouncer that lends transactions; `make test-pgbouncer` runs this."""
