"""What an agent looks at and remembers: records of episodes, maps, removal of memory, scores with their controls."""
