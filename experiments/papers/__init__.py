"""What a table of a paper is, how its cells are computed and kept, and how it is written."""
