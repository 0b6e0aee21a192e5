"""Small games with frames in the format of Atari, and the positions of all objects as ground truth. Drawing: frames.py.

catch.py: catch a falling ball, which may become invisible. track.py: remember which of several equal balls was marked.
key_door.py: reach two things in order, among moving distractors.
"""
