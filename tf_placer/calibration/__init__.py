"""Op and link times measured on the runtime, and problems built from them."""
