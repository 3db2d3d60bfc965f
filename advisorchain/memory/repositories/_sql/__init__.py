"""How conversations lie in a SQL database, and how it is asked."""
