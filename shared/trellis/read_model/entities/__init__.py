"""What the console's page is given of each object, and the difference between two revisions. Pure."""
