"""Networks (Sonnet modules): tensors in, tensors out, no size of a problem in the weights."""
