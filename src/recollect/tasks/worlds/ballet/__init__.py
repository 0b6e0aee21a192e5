"""The ballet. Read world.py; then dances.py (the steps), render.py (the pictures) and levels.py (levels by hand)."""
