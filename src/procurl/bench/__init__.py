"""Looking at results: statistics and figures."""
