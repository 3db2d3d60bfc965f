"""What `advisorchain.explain` is made of: rows, tables, pictures."""
