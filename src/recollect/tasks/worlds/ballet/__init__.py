"""The ballet."""
