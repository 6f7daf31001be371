"""Functions, SavedModels and MetaGraphs, each read as one raw ``Program``. Nothing of them is run."""
