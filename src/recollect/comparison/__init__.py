"""Many runs beside each other: statistics, a page, a picture."""
