"""SQL over the tables of stores, in DuckDB: what a query needs is read, when it asks for it."""
