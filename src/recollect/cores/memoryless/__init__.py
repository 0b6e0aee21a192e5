"""No memory."""
