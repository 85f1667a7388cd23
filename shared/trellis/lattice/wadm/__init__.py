"""wadm's API: requests, statuses, lists."""
