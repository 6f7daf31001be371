"""Studies: methods compared on problems, from a description to a page of results."""
