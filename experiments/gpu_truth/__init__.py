"""Published times of kernels and networks on GPUs, and what the cost model makes of them."""
