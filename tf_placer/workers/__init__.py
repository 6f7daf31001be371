"""The live processes behind a cluster: started here or found at their addresses, watched and ended."""
