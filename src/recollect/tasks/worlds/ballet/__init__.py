"""The ballet: world.py has the rules, dances.py the movements, render.py the pictures, levels.py levels by hand."""
