"""Videos with activities that overlap in time: a procedural world, and loaders of films and of published features."""
