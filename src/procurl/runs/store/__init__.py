"""What runs leave on disk: files that are there as a whole or not at all, and what is in them."""
