"""How conversations lie in MongoDB, and how they are written without transactions."""
