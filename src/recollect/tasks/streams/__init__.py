"""Tasks of rows: tokens or vectors, and questions about them."""
