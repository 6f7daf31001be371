"""Programs on live workers: made to run by themselves, loaded, run under a deadline."""
