"""One-shot navigation. Read world.py; city_graphs.py makes the cities and the tables of their distances."""
