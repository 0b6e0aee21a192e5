"""Worlds: batches of episodes that advance together, written once, in torch. Begin with contract.py.

A short world is one file; arcade/, ballet/ and street_learn/ are folders. tile_rooms.py and tile_pictures.py are what
the worlds of tiles share, pictures.py draws what any world shows.
"""
