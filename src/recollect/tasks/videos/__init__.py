"""Videos with activities that overlap in time: a procedural task, and loaders of videos and published features."""
