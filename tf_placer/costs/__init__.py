"""What ops cost on each device, and which devices have kernels for them."""
