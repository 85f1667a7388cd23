"""The data of each object for the page of the console, and the difference between two revisions. Pure."""
