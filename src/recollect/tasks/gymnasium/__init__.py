"""Conversion between worlds and Gymnasium environments.

views.py   our worlds as environments, single and vector;   make.py   the same by name, for Gymnasium's registry
worlds.py  any environments as a world (the task ``gym``);   rows.py  where they run;   spaces.py  conversion of spaces
"""
