"""How conversations lie in Redis, and the scripts that read and write them."""
