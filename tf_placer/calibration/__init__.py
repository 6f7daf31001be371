"""What the runtime says of ops and links, and problems built from it."""
