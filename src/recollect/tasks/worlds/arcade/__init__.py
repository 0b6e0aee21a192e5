"""Small games in the format of Atari frames, with the truth about where everything is. Begin with frames.py.

catch.py: one ball, one paddle; the light may go out. track.py: which of several balls that look alike was marked at
the start? key_door.py: two things in order, among others that move.
"""
