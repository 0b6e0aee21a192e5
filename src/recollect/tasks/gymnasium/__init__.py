"""To and from Gymnasium.

views.py   our worlds as environments, single and vector;   make.py   the same by name, for Gymnasium's registry
worlds.py  anybody's environments as a world (the task ``gym``);   rows.py  where they live;   spaces.py  what they show
"""
