"""One-shot navigation: world.py has the rules, city_graphs.py the maps and their distance tables."""
